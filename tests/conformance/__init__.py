"""Conformance tests: tokenwire compared to vLLM's server, and used by real clients."""
