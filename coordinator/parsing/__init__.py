"""Tool calls and reasoning, through vLLM's own parsers: the one part of a coordinator that may import vLLM."""
