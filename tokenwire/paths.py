"""The cache directory, for prepared models and workers' tokenizers."""

from pathlib import Path

import platformdirs

from tokenwire.options import Option

CACHE_DIR = Option(
    "--cache-dir",
    "Where prepared models and tokenizers are kept.",
    path="any",
    default_text="the user's cache directory",
)


def default_cache_dir() -> Path:
    """Return the user's cache directory for tokenwire; it may not exist yet."""
    return Path(platformdirs.user_cache_dir("tokenwire"))
