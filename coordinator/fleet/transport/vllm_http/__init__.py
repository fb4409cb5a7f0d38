"""vLLM's own HTTP server as a worker."""
