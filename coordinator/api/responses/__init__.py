"""OpenAI's Responses API, translated to chat and back."""
