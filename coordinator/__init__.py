"""The coordinator owns text: HTTP, templates, tokenization, detokenization, stop strings."""
