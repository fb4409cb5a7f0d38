"""The coordinator handles text: HTTP, templates, tokenization, detokenization, stop strings."""
