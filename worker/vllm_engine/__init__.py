"""The engine interface implemented with vLLM."""
