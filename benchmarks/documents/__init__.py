"""Documents to measure with: distributions of lengths, and texts written to length."""
