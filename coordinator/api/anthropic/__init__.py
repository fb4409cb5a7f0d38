"""Anthropic's Messages API, translated into chat and back."""
