"""How a session speaks to a worker: over gRPC, or to vLLM's own server over HTTP."""
