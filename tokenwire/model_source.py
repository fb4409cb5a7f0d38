"""What the name of a model leads to, looked at before anything heavy starts."""

import re
from pathlib import Path

from tokenwire.errors import NotFound

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
# As transformers, Mistral and llama.cpp describe models.
_DESCRIPTIONS = ("config.json", "params.json", "*.gguf")


def check_model(model: str) -> None:
    """Refuse what can be no model: a directory without one, or a path where nothing is. Raises NotFound."""
    path = Path(model)
    if path.is_dir():
        if not any(found for name in _DESCRIPTIONS for found in path.glob(name)):
            raise NotFound(f"The directory {model} holds no model: it has no config.json.")
    elif not path.exists() and "://" not in model and not _HUB_ID.fullmatch(model):
        raise NotFound(f"There is no model at {model}. Name a directory with a config.json, or a hub id: ORG/NAME.")
