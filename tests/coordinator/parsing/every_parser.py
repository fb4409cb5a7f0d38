"""Prints what each of vLLM's parsers makes of outputs drawn from its own markers, as JSON, in a process of its own.

python -m tests.coordinator.parsing.every_parser light|whole
"""

import inspect
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import AddedToken

from tests.coordinator.parsing import outputs
from tests.coordinator.text import tiny
from tokenwire.coordinator.api.fields.tools import check_tool_choice
from tokenwire.coordinator.parsing.batching import ParserBudget
from tokenwire.coordinator.parsing.light_imports import import_lightly
from tokenwire.coordinator.parsing.message import ParserPlan
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

DRAWS = 8
_MARKER = re.compile(r"""["'](</?[^"'\s\\]{1,40}>|\[/?[A-Z_]{2,30}\]|<[|｜][^"'\n]{1,40}[|｜]>)["']""")
_FORMATS = (outputs.hermes, outputs.qwen3_coder, outputs.llama3_json, outputs.mistral, outputs.deepseek_v3)
_CALLS = [
    *(written(outputs.two_calls(3)) for written in (*_FORMATS, outputs.pythonic, outputs.json_calls)),
    outputs.thinking("Yes.", 5),
    '{"name": "write", "arguments": {"path": "/tmp/a", "text": "x"}}',
    '<invoke name="write"><parameter name="path">/tmp/a</parameter></invoke>',
    "<parameter=city>\nZürich\n</parameter>",
]
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
_TAG = {"begin": "<a>", "schema": _SCHEMA, "end": "</a>"}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}
_CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"response_format": _FORMAT},
    {"response_format": {"type": "structural_tag", "structures": [_TAG], "triggers": ["<a"]}},
    {"structured_outputs": {"regex": "[a-z]+"}},
    {"structured_outputs": {"choice": ["a", "b"]}},
    {"structured_outputs": {"grammar": 'start: "a" | "b"'}},
    {"structured_outputs": {"regex": "[a-z]+"}, "response_format": _FORMAT},
    {"structured_outputs": {"disable_any_whitespace": True}, "response_format": _FORMAT},
)
"""Fields of requests that parsers join with the grammar of their calls."""
_PIECES = ("Ġ</", "</", "think", ">")
"""Tokens that a parser (olmo3) looks up without a marker for them in its source."""
_TEMPLATE = {
    "start_anchor": "<assistant>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "content": {},
        "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "content": "json", "repeats": True},
    },
}
"""Describes outputs for the parser that asks for it (hf)."""
_CONFIG = json.dumps({"response_template": _TEMPLATE}).encode()


def main(how: str) -> None:
    """Import lightly or all of vLLM, and print the results by the parser's name."""
    if how == "light":
        import_lightly()
    found = parser_results()
    torch = sys.modules.get("torch")
    print(json.dumps({"results": found, "has torch": getattr(torch, "__file__", None) is not None}))


def parser_results(draws: int = DRAWS) -> dict[str, Any]:
    """Return what each parser makes of that many outputs, by its name."""
    from tokenwire.coordinator.parsing import vllm_parsers as module

    found: dict[str, Any] = {}
    for settings in _each(module):
        name = f"tools: {settings.tool_call_parser}, reasoning: {settings.reasoning_parser}"
        try:
            found[name] = _results(module, settings, draws)
        except Exception as error:  # a parser that cannot be made fails in the same way without the rest of vLLM
            found[name] = _words(error)
    return found


def _each(module: Any) -> Iterator[ParserSettings]:
    for name in sorted(module.ToolParserManager.list_registered()):
        yield ParserSettings(tool_call_parser=name, enable_auto_tool_choice=True)
    for name in sorted(module.ReasoningParserManager.list_registered()):
        yield ParserSettings(reasoning_parser=name)


def _results(module: Any, settings: ParserSettings, draws: int) -> list[Any]:
    markers = _markers(module, settings)
    backend = tiny.byte_level().backend
    backend.add_tokens([AddedToken(marker, special=True) for marker in markers])
    if settings.reasoning_parser == "olmo3":
        backend.add_tokens(list(_PIECES))
    tokenizer = tiny.from_backend(backend)
    files = {"tokenizer.json": backend.to_str().encode(), "tokenizer_config.json": _CONFIG}
    parsers = module.VllmParsers(settings, ModelFacts(), files, ParserBudget(per_token_s=float("inf")))
    pick = random.Random(f"{settings.tool_call_parser} {settings.reasoning_parser}")
    results: list[Any] = [_grammar(parsers, fields) for fields in _CONSTRAINTS if settings.tool_call_parser]
    for draw in range(draws):
        body = outputs.chat_body(tools=settings.tool_call_parser is not None)
        plan = parsers.plan(body, check_tool_choice(body))
        results.append([str(plan.structured_outputs), plan.skip_special_tokens])
        text = "".join(pick.choice([*markers, *_CALLS, outputs.prose(4, draw), "\n"]) for _ in range(12))
        ids = tokenizer.encode(text, add_special_tokens=False)
        results += [_streamed(plan, tokenizer, ids), _full(plan, text, ids)]
    return results


def _grammar(parsers: Any, fields: dict[str, Any]) -> str:
    """Return the grammar of a request with tools whose schemas are strict, and another constraint."""
    body = outputs.chat_body() | fields
    body["tools"] = [tool | {"function": tool["function"] | {"strict": True}} for tool in body["tools"]]
    try:
        plan = parsers.plan(body, check_tool_choice(body))
        return str(plan and plan.structured_outputs)
    except Exception as error:
        return _words(error)


def _markers(module: Any, settings: ParserSettings) -> list[str]:
    """Return the markers in the sources of a parser and of its bases."""
    if name := settings.tool_call_parser:
        cls = module.ToolParserManager.get_tool_parser(name)
    else:
        cls = module.ReasoningParserManager.get_reasoning_parser(settings.reasoning_parser)
    engine = getattr(cls, "parser_engine_cls", None) or getattr(cls, "_parser_cls", None)
    modules = {
        inspect.getmodule(each) for each in (*cls.__mro__, *getattr(engine, "__mro__", ())) if each is not object
    }
    found = {marker for each in modules if each is not None for marker in _MARKER.findall(inspect.getsource(each))}
    found = {re.sub(r"\{[^{}]*\}", "", marker) for marker in found}  # a suffix, empty for most tokenizers
    return sorted(found | {"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[THINK]", "[/THINK]"})


def _streamed(plan: ParserPlan, tokenizer: ModelTokenizer, ids: Sequence[int]) -> Any:
    deltas: list[Any] = []
    try:
        parser = plan.parser([1, 2, 3])
        texts = TextStreams(tokenizer, TextRules(skip_special_tokens=plan.skip_special_tokens)).stream([1, 2, 3])
        for index, token_id in enumerate(ids, 1):
            text, _, _ = texts.step([token_id], False, index == len(ids))
            deltas.append(parser.delta(text, [token_id], index == len(ids)))
    except Exception as error:
        deltas.append(_words(error))
    return [_without_ids(delta) for delta in deltas]


def _full(plan: ParserPlan, text: str, ids: Sequence[int]) -> str:
    try:
        return _without_ids(plan.parser([1, 2, 3]).full(text, ids, "stop"))
    except Exception as error:
        return _words(error)


def _without_ids(value: object) -> str:
    """Return a result without the ids of calls, which are random."""
    return re.sub(r"id='[^']*'", "id", repr(value))


def _words(error: BaseException | None) -> str:
    """Return an error and those that it comes from."""
    words = []
    while error is not None:
        words.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return ", from ".join(words)


if __name__ == "__main__":
    main(sys.argv[1])
