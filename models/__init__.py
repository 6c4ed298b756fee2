"""Attention mechanisms, the classifier built from them, and what describes both."""
