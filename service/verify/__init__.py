"""`longdoc verify URL`: whether a running service answers as it should. Standard library only."""
