"""Stock vLLM API servers as workers: token ids over HTTP, made to look like a worker's session."""
