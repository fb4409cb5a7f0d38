"""Loads the configured parsers; may import vLLM, which is slow, so it runs in a thread at start."""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType

from tokenwire.coordinator.parsing.disagreements import Disagreements
from tokenwire.coordinator.parsing.message import Parsers, ParserUnusable
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings


def import_parsers(settings: ParserSettings) -> None:
    """Import the parsers' dependencies and check their names, before a model is known. Raises ParserUnusable."""
    if settings.parses:
        _vllm_parsers().check_names(settings)


def load_parsers(
    settings: ParserSettings, model: ModelFacts, files: Mapping[str, bytes], disagreements: Disagreements | None = None
) -> Parsers | None:
    """Return the parsers of one model, given its tokenizer's files by name; None: none. Raises ParserUnusable."""
    if not settings.parses:
        return None
    module = _vllm_parsers()
    module.check_names(settings)
    parsers: Parsers = module.VllmParsers(settings, model, files, disagreements=disagreements)
    return parsers


def _vllm_parsers() -> ModuleType:
    try:
        return importlib.import_module("tokenwire.coordinator.parsing.vllm_parsers")
    except ImportError as error:
        package = (error.name or "").split(".")[0]
        if package == "tokenwire":
            raise
        if package == "vllm" and (installed := _installed_vllm()):
            raise ParserUnusable(
                f"Tool and reasoning parsers of vLLM {installed} are not supported ({error.msg}). A coordinator needs "
                "those of the version that pip install 'tokenwire[parsers]' gives; its workers may run another one."
            ) from error
        raise ParserUnusable(
            f"Tool and reasoning parsers need vLLM, and {error.name} is not installed: pip install 'tokenwire[parsers]'"
        ) from error


def _installed_vllm() -> str:
    """Return the version of vLLM, "" without one."""
    version = getattr(sys.modules.get("vllm"), "__version__", "")
    return str(version).partition("+")[0]
