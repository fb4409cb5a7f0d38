"""Token-in, token-out: translations of other servers' contracts, one module each."""
