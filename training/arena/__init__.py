"""Tasks that a bag of words cannot solve, and every attention mechanism trained on them."""
