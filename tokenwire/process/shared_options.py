"""Options that coordinators and workers share: how long they drain, the size of pictures, and the cache directory."""

from pathlib import Path

import platformdirs

from tokenwire.options import Bounds, Option, Section

DRAIN_TIMEOUT_S = 30.0
DRAIN_TIMEOUT: Option[float] = Option(
    "--drain-timeout", "Seconds that running requests get to finish after SIGTERM.", bounds=Bounds(at_least=0)
)

MAX_MEDIA_PIXELS_DEFAULT = 64_000_000
MAX_MEDIA_PIXELS: Option[int] = Option(
    "--max-media-pixels",
    "Maximum pixels of a picture, checked before anything is decoded.",
    Section.MEDIA,
    bounds=Bounds(above=0),
)

CACHE_DIR: Option[Path] = Option(
    "--cache-dir",
    "Where prepared models and tokenizers are kept.",
    path="any",
    default_text="the user's cache directory",
)


def default_cache_dir() -> Path:
    """Return the user's cache directory for tokenwire; it may not exist yet."""
    return Path(platformdirs.user_cache_dir("tokenwire"))
