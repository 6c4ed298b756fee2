"""Learning from text without labels: `longdoc pretrain` and `longdoc convert`."""
