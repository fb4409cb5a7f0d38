"""OpenAI's chat and completions."""
