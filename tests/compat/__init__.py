"""`make compat`: each minor of vLLM that a worker runs on, in an environment of its own."""
