"""Parity: the same requests to vLLM's own server and to tokenwire, compared field by field."""
