"""Transports of a session: gRPC to a tokenwire worker, or HTTP to a plain vLLM server."""
