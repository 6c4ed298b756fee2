"""`longdoc serve`, `longdoc classify` and the table of settings for the docs."""
