"""Limits on how old the weights of a reply's tokens may be."""
