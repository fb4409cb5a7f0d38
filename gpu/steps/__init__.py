"""One module a step: NAME, LIMIT_S, run(kit). They import vLLM and torch only within functions."""
