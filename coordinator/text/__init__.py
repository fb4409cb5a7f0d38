"""Text: messages to prompts by chat templates, prompts to ids, ids back to text, and stop strings."""
