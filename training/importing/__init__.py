"""Reads checkpoints of other libraries: Hugging Face and sentence-transformers folders."""
