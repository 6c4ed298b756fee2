"""From labelled documents to a checkpoint: readers, tokenizer, training loop, evaluation."""
