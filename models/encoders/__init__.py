"""Pre-trained encoders: the networks of imported checkpoints."""
