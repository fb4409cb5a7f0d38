"""Text: chat template and messages to a prompt, prompt to ids, ids back to text, and stop strings. Knows no sockets."""
