"""Generates pages of docs/reference/ from what the code declares; `make reference` writes them."""
