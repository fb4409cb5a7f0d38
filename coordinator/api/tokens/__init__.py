"""Token-in, token-out: one module for each contract that clients know, all of them translations."""
