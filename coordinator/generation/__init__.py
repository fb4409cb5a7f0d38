"""The one service between routes and workers: prompts, limits, models."""
