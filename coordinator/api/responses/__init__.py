"""OpenAI's Responses API, translated into chat and back."""
