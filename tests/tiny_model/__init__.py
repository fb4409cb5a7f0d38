"""A model for tests of real engines: of vLLM's everything, of a model's computing next to nothing."""

from tests.tiny_model.model import TINY_MODEL_NAME, tiny_model

__all__ = ["TINY_MODEL_NAME", "tiny_model"]
