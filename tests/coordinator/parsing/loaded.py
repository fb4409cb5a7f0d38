"""vLLM's parsers with the tokenizers of real models, cached because loading takes seconds."""

from functools import cache
from typing import TYPE_CHECKING, Any

from tests.lazily import Lazily
from tests.tokenizers import npm_tokenizer_files
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings

if TYPE_CHECKING:
    from tokenwire.coordinator.parsing.vllm_parsers import VllmParsers

vllm_parsers = Lazily("tokenwire.coordinator.parsing.vllm_parsers")


@cache
def parsers(tool_parser: str | None, reasoning_parser: str | None, tokenizer: str) -> "VllmParsers":
    """Load parsers by name for a tokenizer's model."""
    settings = ParserSettings(tool_parser, reasoning_parser, enable_auto_tool_choice=tool_parser is not None)
    loaded: VllmParsers = vllm_parsers.VllmParsers(
        settings, ModelFacts(), npm_tokenizer_files(tokenizer), tokenizer=_loaded_tokenizer(tokenizer)
    )
    return loaded


@cache
def _loaded_tokenizer(name: str) -> Any:
    return vllm_parsers.load_tokenizer(npm_tokenizer_files(name))
