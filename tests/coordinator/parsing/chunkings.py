"""What each of vLLM's parsers makes of replies in drawn chunkings."""

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.coordinator.parsing import markups
from tests.coordinator.parsing.replies import TOOLS, forced_replies, replies
from tests.coordinator.text import tiny
from tests.lazily import Lazily
from tokenwire.coordinator.api.fields.tools import check_tool_choice
from tokenwire.coordinator.output.choice import Choice
from tokenwire.coordinator.parsing.agreement import joined
from tokenwire.coordinator.parsing.batching import ParserBudget
from tokenwire.coordinator.parsing.held_calls import held_from
from tokenwire.coordinator.parsing.message import MessageParser, ParserPlan, RawMessage
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.v1 import inference_pb2 as pb

vllm_parsers = Lazily("tokenwire.coordinator.parsing.vllm_parsers")

UNTESTED = {
    "cohere_command3": "needs the package cohere_melody",
    "cohere_command4": "needs the package cohere_melody",
    "hf": "takes its markup from the tokenizer's response_template",
    "openai": "needs the tokenizer of gpt-oss",
    "openai_gptoss": "needs the tokenizer of gpt-oss",
}
"""Parsers that are not tested, and why."""
PROMPT = [1, 2, 3]
END = "<end>"


@dataclass
class KeptSteps:
    """A choice's reply that keeps its steps."""

    steps: list[tuple[str, list[int], bool]] = field(default_factory=list)

    def first_tokens(self) -> None: ...

    def prefilled(self, index: int, prefill: Any) -> None: ...

    def tokens_of(self, index: int) -> int:
        """Return the number of tokens so far."""
        return sum(len(ids) for _, ids, _ in self.steps)

    def delta(self, index: int, text: str, token_ids: list[int], finish: Any, logprobs: Any = None) -> None:
        """Keep a step."""
        self.steps.append((text, token_ids, finish is not None))

    def fail(self, error: Exception) -> None:
        """Raise the error."""
        raise error


class Subject:
    """One of vLLM's parsers, with a tokenizer for its markup."""

    def __init__(self, settings: ParserSettings, tool_choice: str) -> None:
        self.settings = settings
        tools, reasoning = settings.tool_call_parser, settings.reasoning_parser
        reasons = markups.REASONING.get(reasoning or "", markups.THINK)
        self.markup = reasons if tools is None else markups.TOOLS[tools]
        if tools is not None and reasoning is not None:
            self.markup = markups.Markup(
                self.markup.writes, reasons.thinks, self.markup.answers, f"{self.markup.tokens} {reasons.tokens}"
            )
        self.tokenizer = tiny.from_backend(_trained(self.markup))
        files = {"tokenizer.json": self.tokenizer.backend.to_str().encode(), "tokenizer_config.json": b"{}"}
        self._parsers = vllm_parsers.VllmParsers(settings, ModelFacts(), files)
        named = {"type": "function", "function": {"name": tool_choice}}
        choice = tool_choice if tool_choice in ("auto", "required") else named
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": "Hi"}],
            "chat_template_kwargs": {"thinking": True, "enable_thinking": True},
        } | ({"tools": TOOLS, "tool_choice": choice} if tools else {})
        plan = self._parsers.plan(body, check_tool_choice(body))
        assert plan is not None
        self.plan: ParserPlan = plan

    def forced_replies(self) -> Iterator[str]:
        """Yield replies to a request that requires calls or names a tool."""
        named = self.plan.rules.tool_choice == "named"
        return forced_replies(self.markup, named, self.settings.reasoning_parser is not None)

    @property
    def held(self) -> bool:
        """Whether its calls are left to the end of a stream."""
        return held_from(self.settings, MessageRules("auto")) is not None

    def ids(self, text: str) -> list[int]:
        """Return the ids of a reply with its end."""
        return self.tokenizer.encode(text + END, add_special_tokens=False)

    def steps(self, ids: Sequence[int], chunks: Sequence[int]) -> list[tuple[str, list[int], bool]]:
        """Return what a choice passes on of frames with these numbers of tokens."""
        rules, reply = TextRules(skip_special_tokens=self.plan.skip_special_tokens), KeptSteps()
        choice = Choice(0, TextStreams(self.tokenizer, rules).stream(PROMPT), reply, token_by_token=True)
        start = 0
        for number, count in enumerate(chunks, 1):
            finish = pb.Finish(reason=pb.FINISH_REASON_STOP) if number == len(chunks) else None
            choice.step(list(ids[start : start + count]), finish)
            start += count
        return reply.steps

    def streamed(self, ids: Sequence[int], chunks: Sequence[int], budget: ParserBudget) -> RawMessage | str:
        """Return a stream's message, or why it failed."""
        parser = self._parser(budget)
        return _tried(lambda: joined([d for step in self.steps(ids, chunks) if (d := parser.delta(*step))]))

    def whole(self, ids: Sequence[int]) -> RawMessage | str:
        """Return the message of a reply that is not streamed, or why it failed."""
        steps = self.steps(ids, [1] * len(ids))
        texts = [text for text, _, _ in steps]
        return _tried(lambda: _raw(self._parser(NEVER), "".join(texts), list(ids), texts))

    def of_vllm(self, text: str) -> tuple[RawMessage | str, RawMessage | str]:
        """Return what vLLM's own parser returns: token by token, and for a complete reply."""
        ids = self.ids(text)
        steps = self.steps(ids, [1] * len(ids))
        cls = vllm_parsers.VllmParser
        request, parser = self.plan._request, self.plan._new_parser  # type: ignore[attr-defined]
        stream, full = parser(request), parser(request)
        raw = cls(stream, full, request, PROMPT, self.plan.rules)
        whole = _tried(lambda: raw.parse("".join(text for text, _, _ in steps), ids))
        return _tried(lambda: joined([d for step in steps if (d := raw.feed(*step))])), whole

    def _parser(self, budget: ParserBudget) -> MessageParser:
        self._parsers.budget = budget
        return self.plan.parser(PROMPT)


NEVER = ParserBudget(per_token_s=math.inf)
"""Batches nothing."""


def budgets(pick: random.Random) -> ParserBudget:
    """Return a budget that batches nothing, all that it may, or some."""
    if pick.random() < 0.3:
        return NEVER
    clock = iter(range(10**9)).__next__
    rarely = pick.random() < 0.5
    return ParserBudget(
        per_token_s=0.25 if rarely else 0.0, wait_s=math.inf, cpu_clock=lambda: float(clock()), wall_clock=lambda: 0.0
    )


def chunking(length: int, pick: random.Random) -> list[int]:
    """Return how many tokens each frame has: one, all, or random numbers, as speculation and merging give."""
    longest = pick.choice([1, 2, 5, 20, length])
    chunks: list[int] = []
    while length:
        chunks.append(pick.randint(1, min(longest, length)) if longest < length else length)
        length -= chunks[-1]
    return chunks


def same(one: RawMessage | str, other: RawMessage | str) -> bool:
    """Return whether two messages say the same: white space at the ends of texts, and of JSON, does not count."""
    return bool(_compared(one) == _compared(other))


def all_settings() -> Iterator[ParserSettings]:
    """Return settings for each parser that is tested, and for those with both parts of one model."""
    tools = vllm_parsers.ToolParserManager.list_registered()
    reasoning = vllm_parsers.ReasoningParserManager.list_registered()
    for name in sorted(set(tools) - set(UNTESTED)):
        yield ParserSettings(tool_call_parser=name, enable_auto_tool_choice=True)
    for name in sorted(set(reasoning) - set(UNTESTED)):
        yield ParserSettings(reasoning_parser=name)
    pairs = [(name, name) for name in sorted(set(tools) & set(reasoning) - set(UNTESTED))]
    for name, thinks in [*pairs, ("hermes", "qwen3"), ("hermes", "deepseek_r1"), ("qwen3_coder", "qwen3")]:
        yield ParserSettings(tool_call_parser=name, reasoning_parser=thinks, enable_auto_tool_choice=True)


@cache
def subject(settings_name: str, tool_choice: str = "auto") -> Subject:
    """Return a subject by its name, once, with requests of a tool choice: "auto", "required", or the name of a tool."""
    return Subject(next(each for each in all_settings() if name_of(each) == settings_name), tool_choice)


def name_of(settings: ParserSettings) -> str:
    """Return the name under which settings are listed."""
    return " with ".join(f"{what} `{name}`" for what, name in settings.names.items())


def _trained(markup: markups.Markup) -> Tokenizer:
    """Return a byte-level tokenizer whose tokens cross the borders of a markup's parts, as those of models do."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(list(replies(markup).values()), trainer)
    words = [word for word in dict.fromkeys(markup.tokens.split(" ")) if word]
    backend.add_tokens([AddedToken(word, special=False) for word in words] + [AddedToken(END, special=True)])
    return backend


def _raw(parser: MessageParser, text: str, ids: list[int], texts: list[str]) -> RawMessage:
    message = parser.full(text, ids, "stop", texts)
    return message.reasoning, message.content, message.tool_calls


def _tried(work: Callable[[], RawMessage]) -> RawMessage | str:
    try:
        return work()
    except Exception as error:
        return type(error).__name__


def _compared(message: RawMessage | str) -> Any:
    if isinstance(message, str):
        return message
    reasoning, content, calls = message
    return (reasoning or "").strip(), (content or "").strip(), [(call.name, _value(call)) for call in calls]


def _value(call: ParsedToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments
