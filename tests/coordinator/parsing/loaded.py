"""vLLM's parsers with the tokenizers of real models, cached because loading takes seconds."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.lazily import Lazily
from tests.tokenizers import npm_tokenizer_files
from tokenwire.coordinator.api.fields.tools import check_tool_choice
from tokenwire.coordinator.parsing.message import ParserPlan
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


def plan_of(parsers: "VllmParsers", body: Mapping[str, Any]) -> ParserPlan | None:
    """Return the plan of a request, whose choice of tools the API checks."""
    return parsers.plan(body, check_tool_choice(body))


@cache
def _loaded_tokenizer(name: str) -> Any:
    return vllm_parsers.load_tokenizer(npm_tokenizer_files(name))
