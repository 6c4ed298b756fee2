"""Measurements of accuracy of approximation, latency and memory, and their records."""
