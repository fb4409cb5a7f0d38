"""Where tokenwire keeps what it can make again: prepared models, tokenizers of workers."""

from pathlib import Path

import platformdirs


def default_cache_dir() -> Path:
    """Return the user's cache directory for tokenwire; it may not exist yet."""
    return Path(platformdirs.user_cache_dir("tokenwire"))
