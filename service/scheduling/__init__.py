"""Which document runs next, on which worker, and with which others."""
