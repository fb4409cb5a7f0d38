"""Where weights and adapters may be read from: checked here, where paths are used, whoever sent them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenwire.errors import InvalidRequest

_TAKE_PATHS = frozenset(
    {"load_model", "reload_weights", "save_sharded_state", "save_tensorized_model", "update_config"}
    | {"update_weights_from_path"}
)
"""vLLM's methods to which any string may be a place: a directory, or a name to be fetched from a hub."""


class WeightRoots:
    """Directories, and what is under them; none: everything may be read."""

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        """`roots` are resolved already."""
        self._roots = roots

    def check(self, path: str) -> None:
        """Check a path, with its links followed. Raises InvalidRequest."""
        if self._roots and not self._holds(path):
            allowed = ", ".join(map(str, self._roots))
            raise InvalidRequest(f"This worker reads weights only from {allowed}, not from {path[:1000]}.")

    def check_call(self, method: str, arguments: Any) -> None:
        """Check all that may be a path among the arguments of a method of the engine's. Raises InvalidRequest."""
        if self._roots:
            for text in _strings(arguments):
                if method in _TAKE_PATHS or _may_be_path(text):
                    self.check(text)

    def _holds(self, path: str) -> bool:
        try:
            resolved = Path(path).expanduser().resolve()
        except (OSError, RuntimeError, ValueError):
            return False
        return any(resolved.is_relative_to(root) for root in self._roots)


def _strings(value: Any) -> Iterator[str]:
    """Walk the texts in a JSON value, however deep; names of fields are none."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, Sequence):
            waiting += value


def _may_be_path(text: str) -> bool:
    return os.sep in text or text.startswith("~") or os.path.exists(text)
