"""vLLM's parser of one choice, as the coordinator uses parsers."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.coordinator.parsing.message import MessageDelta, ToolCallDelta
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]
vllm_output = Lazily("tokenwire.coordinator.parsing.vllm_output")

REQUEST, PROMPT = object(), [1, 2]
RULES = MessageRules("auto", parses_tools=True)


class FakeVllmParser:
    """A parser of vLLM's that returns what it is given, and records what it gets."""

    def __init__(self, result: Any) -> None:
        self.got: list[Any] = []
        self._result = result

    def parse_delta(self, text: str, token_ids: list[int], request: Any, prompt: list[int], finished: bool) -> Any:
        """Return it."""
        self.got.append((text, token_ids, request, prompt, finished))
        return self._result

    def set_prompt_token_ids(self, prompt: list[int]) -> None:
        """Record it."""
        self.got.append(prompt)

    def parse(self, text: str, request: Any, enable_auto_tools: bool, model_output_token_ids: Sequence[int]) -> Any:
        """Return it."""
        self.got.append((text, request, enable_auto_tools, model_output_token_ids))
        return self._result

    def count_reasoning_tokens(self, token_ids: tuple[int, ...]) -> int:
        """Count all of them."""
        return len(token_ids)


def adapted(result: Any) -> tuple[Any, FakeVllmParser]:
    """Return the adapter of a parser with this result, and the parser."""
    parser = FakeVllmParser(result)
    return vllm_output.VllmParser(parser, parser, REQUEST, PROMPT, RULES), parser


def delta_of(content: str | None = None, reasoning: str | None = None, *calls: Any) -> Any:
    """Return a delta of vLLM's."""
    return SimpleNamespace(content=content, reasoning=reasoning, tool_calls=list(calls))


@pytest.mark.parametrize("delta", [None, delta_of(), delta_of("", "")])
def test_an_empty_delta_is_none(delta: Any) -> None:
    """So that no chunk is sent for it; the parser gets the request and its prompt."""
    parser, theirs = adapted(delta)

    assert parser.feed("x", [5], True) is None
    assert theirs.got == [("x", [5], REQUEST, [1, 2], True)]


def test_deltas_keep_their_parts() -> None:
    """Calls with and without a function."""
    call = SimpleNamespace(index=0, id="c", function=SimpleNamespace(name="f", arguments="{"))
    bare = SimpleNamespace(index=1, id="d", function=None)

    delta = adapted(delta_of("a", "hm", call, bare))[0].feed("x", [5], False)

    assert delta == MessageDelta("a", "hm", (ToolCallDelta(0, "c", "f", "{"), ToolCallDelta(1, "d")))


def test_a_full_output_has_calls_with_ids() -> None:
    """Those that the parser gives none get one; it knows the prompt and the ids of the output."""
    calls = [SimpleNamespace(id=identifier, name="f", arguments="{}") for identifier in ("c", None)]
    parser, theirs = adapted(("hm", "a", calls))

    reasoning, content, (known, named) = parser.parse("x", [5])

    assert (reasoning, content, known) == ("hm", "a", ParsedToolCall("c", "f", "{}"))
    assert named.id
    assert theirs.got == [[1, 2], ("x", REQUEST, True, [5])]
    assert parser.count_reasoning([5, 6]) == 2
