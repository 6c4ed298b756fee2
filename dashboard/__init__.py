"""Streamlit pages over the benchmark records."""
