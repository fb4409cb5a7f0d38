"""Restricts the directories from which weights and adapters may be read, regardless of who sent the path."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenwire.errors import InvalidRequest

_TAKE_PATHS = frozenset(
    {"load_model", "reload_weights", "save_sharded_state", "save_tensorized_model", "update_config"}
    | {"update_weights_from_path"}
)
"""vLLM's methods for which any string may be a location: a directory, or a name on a hub."""


class WeightRoots:
    """Directories that may be read, with everything below them; none: no restriction."""

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        """`roots` must be resolved."""
        self._roots = roots

    def check(self, path: str) -> None:
        """Check a path, following symbolic links. Raises InvalidRequest."""
        if self._roots and not self._contains(path):
            allowed = ", ".join(map(str, self._roots))
            raise InvalidRequest(f"This worker reads weights only from {allowed}, not from {path[:1000]}.")

    def check_call(self, method: str, arguments: Any) -> None:
        """Check every argument of an engine method that may be a path. Raises InvalidRequest."""
        if self._roots:
            for text in _strings(arguments):
                if method in _TAKE_PATHS or _may_be_path(text):
                    self.check(text)

    def _contains(self, path: str) -> bool:
        try:
            resolved = Path(path).expanduser().resolve()
        except (OSError, RuntimeError, ValueError):
            return False
        return any(resolved.is_relative_to(root) for root in self._roots)


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings of a JSON value, at any depth; keys are left out."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            stack += value.values()
        elif isinstance(value, Sequence):
            stack += value


def _may_be_path(text: str) -> bool:
    return os.sep in text or text.startswith("~") or os.path.exists(text)
