"""Implements Parsers with vLLM's own; only this module, vllm_output.py and harmony.py here import vLLM."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMClientError
from vllm.parser import Parser, ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.renderers import merge_kwargs
from vllm.tokenizers.hf import get_cached_tokenizer
from vllm.tool_parsers import ToolParserManager

from tokenwire.coordinator.parsing import grammar
from tokenwire.coordinator.parsing.batching import ParserBudget, SpareTime
from tokenwire.coordinator.parsing.brief_logs import shorten_errors
from tokenwire.coordinator.parsing.choice_parser import ChoiceParser
from tokenwire.coordinator.parsing.disagreements import Disagreements
from tokenwire.coordinator.parsing.folders import folder_of
from tokenwire.coordinator.parsing.gradual_release import releasing_gradually
from tokenwire.coordinator.parsing.harmony import as_vllm_takes, harmony_prompt, load_harmony
from tokenwire.coordinator.parsing.held_calls import HeldCalls, held_from
from tokenwire.coordinator.parsing.message import MessageParser, ParserPlan, ParserUnusable, RawParser
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.parsing.rules import (
    CheckedToolChoice,
    MessageRules,
    choice_kind,
    copy_body,
    require_tool_parser,
)
from tokenwire.coordinator.parsing.settings import ModelFacts, ParserSettings
from tokenwire.coordinator.parsing.vllm_output import VllmParser
from tokenwire.coordinator.text.template.pictures import without_pictures
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

T = TypeVar("T")


class FailFastChatRequest(RequestModel, ChatCompletionRequest):  # type: ignore[misc]
    """vLLM's request with lists that fail at their first invalid item."""


class RequestWithAnyMessages(FailFastChatRequest):
    """One whose messages it does not check, since parsers only count the calls in them: rendering checks them."""

    messages: list[dict[str, Any]]


def check_names(settings: ParserSettings) -> None:
    """Import plugins and check that the parsers exist. Raises ParserUnusable with a list of the registered ones."""
    if settings.tool_parser_plugin:
        ToolParserManager.import_tool_parser(settings.tool_parser_plugin)
    if settings.reasoning_parser_plugin:
        ReasoningParserManager.import_reasoning_parser(settings.reasoning_parser_plugin)
    for flag, name, manager in (
        ("--tool-call-parser", settings.tool_call_parser, ToolParserManager),
        ("--reasoning-parser", settings.reasoning_parser, ReasoningParserManager),
    ):
        known = manager.list_registered()
        if name and name not in known:
            raise ParserUnusable(f"{flag} {name}: unknown parser. vLLM has: {', '.join(known)}")


class VllmParsers:
    """The parsers of one model. Plans may be made in any thread; a parser belongs to one thread."""

    def __init__(
        self,
        settings: ParserSettings,
        model: ModelFacts,
        files: Mapping[str, bytes],
        budget: ParserBudget | None = None,
        tokenizer: Any = None,
        disagreements: Disagreements | None = None,
    ) -> None:
        """Load the parser classes, and the tokenizer from its files if it is not given. Raises ParserUnusable."""
        self.budget = budget or ParserBudget(spare=SpareTime())
        self.settings = settings
        self.is_harmony = model.kind(settings) == "gpt_oss"
        self.model_config = model.as_config(settings)
        self.tokenizer = load_tokenizer(files) if tokenizer is None else tokenizer
        if self.is_harmony:  # before a parser tries to download it
            load_harmony(files)
        self.parser_cls = cls = self._parser_class(model.name)
        shorten_errors(part for part in (cls, cls.reasoning_parser_cls, cls.tool_parser_cls) if part is not None)
        self.answer_parser_cls = type("AnswerParser", (cls,), {"reasoning_parser_cls": None})
        """The parser class for output after reasoning."""
        self.text_parser_cls = type("TextParser", (cls,), {"tool_parser_cls": None})
        """The parser class for output before calls."""
        self.always_adjusts = cls.always_adjust_request or cls.reasoning_parser_cls is not None
        self.marks = frozenset(self.tokenizer.added_tokens_decoder)
        self.name = " with ".join(f"{what} {name}" for what, name in settings.names.items())
        """The operator's name of both parsers, for errors."""
        self.count_disagreement = partial((disagreements or Disagreements()).count, "+".join(settings.names.values()))

    @property
    def counts_reasoning(self) -> bool:
        """Whether usage includes the number of reasoning tokens."""
        return bool(self.settings.reasoning_parser)

    def plan(self, body: Mapping[str, Any], choice: CheckedToolChoice) -> ParserPlan | None:
        """Check a chat request and return its plan. Raises InvalidRequest."""
        if choice is not None and self.parser_cls.tool_parser_cls is None and not self.is_harmony:
            require_tool_parser(choice, self.settings.enable_auto_tool_choice)
        if self._changes_nothing(choice, body):
            return None
        return VllmPlan(self, _as_request(lambda: self._request(copy_body(body))))

    @property
    def incremental(self) -> bool:
        """Whether the parsers accept deltas of any size: those on vLLM's parser engine do."""
        parts = (self.parser_cls.reasoning_parser_cls, self.parser_cls.tool_parser_cls)
        return not self.is_harmony and all(part is None or part.engine_based_streaming for part in parts)

    def _request(self, body: dict[str, Any]) -> ChatCompletionRequest:
        if not self.is_harmony:
            return RequestWithAnyMessages.model_validate({**body, "messages": without_pictures(body["messages"])})
        return FailFastChatRequest.model_validate({**body, "messages": list(map(as_vllm_takes, body["messages"]))})

    def _changes_nothing(self, choice: CheckedToolChoice, body: Mapping[str, Any]) -> bool:
        # A tool parser passes text on if no calls are requested, unless it belongs to vLLM's parser engine.
        if self.is_harmony or self.always_adjusts:
            return False
        idle = choice is None and body.get("include_reasoning", True) is True
        return idle and not self.incremental

    def _parser_class(self, model_name: str) -> type[Parser]:
        settings = self.settings
        try:
            cls: type[Parser] | None = ParserManager.get_parser(
                tool_parser_name=settings.tool_call_parser,
                reasoning_parser_name=settings.reasoning_parser,
                enable_auto_tools=settings.enable_auto_tool_choice,
                model_name=model_name,
                is_harmony=self.is_harmony,
                tool_strict_level=settings.tool_strict_level,
                tokenizer=self.tokenizer,
            )
        except (TypeError, ValueError) as error:
            raise ParserUnusable(str(error)) from error
        if cls is None:
            raise ParserUnusable("No parser is configured.")
        return releasing_gradually(cls)


class VllmPlan:
    """One request's plan: vLLM's request as its parsers adjusted it."""

    def __init__(self, parsers: VllmParsers, request: ChatCompletionRequest) -> None:
        """Let the parsers adjust the request, as vLLM's renderer does. Raises InvalidRequest."""
        self._parsers = parsers
        self._template_kwargs = _template_kwargs(parsers, request)
        self.rules = MessageRules(
            tool_choice=choice_kind(request.tool_choice),
            parses_tools=parsers.parser_cls.tool_parser_cls is not None,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            include_reasoning=request.include_reasoning,
        )
        self.prompt_token_ids: Sequence[int] | None = None
        if parsers.is_harmony:
            request = _as_request(lambda: self._new_parser(request).adjust_request(request))
            self.prompt_token_ids = _as_request(lambda: harmony_prompt(request))
        elif parsers.always_adjusts or request.tool_choice != "none":
            request = _as_request(lambda: self._new_parser(request).adjust_request(request))
        self._request = request
        self._shared: tuple[Sequence[int], list[int]] = (), []

    @property
    def skip_special_tokens(self) -> bool:
        """Whether the text omits special tokens."""
        return bool(self._request.skip_special_tokens)

    @property
    def spaces_between_special_tokens(self) -> bool:
        """The detokenizer's rule of that name."""
        return bool(self._request.spaces_between_special_tokens)

    @cached_property
    def structured_outputs(self) -> pb.StructuredOutputs | None:
        """The grammar for generation."""
        params = _as_request(self._request.extract_structured_outputs)
        return None if params is None else grammar.to_wire(params)

    @property
    def reasoning_parser_kwargs(self) -> Mapping[str, Any] | None:
        """Arguments of the engine's own reasoning parser."""
        if self._parsers.parser_cls.reasoning_parser_cls is None:
            return None
        return {"chat_template_kwargs": self._template_kwargs}

    def reasoning_ended(self, prompt_token_ids: Sequence[int]) -> bool | None:
        """Return whether reasoning is over at the end of the prompt."""
        ended: bool | None = self._request.resolve_reasoning_ended(
            self._new_parser(self._request), list(prompt_token_ids)
        )
        return ended

    def parser(self, prompt_token_ids: Sequence[int]) -> MessageParser:
        """Return a parser for one choice."""
        parsers, prompt = self._parsers, self._as_list(prompt_token_ids)
        # vLLM parses a complete output as a new message, and continues the prompt's message only in streams.
        continues = self._request.continue_final_message and self._new_parser(self._request).is_reasoning_end(prompt)
        return ChoiceParser(
            partial(self._raw_parser, prompt, parsers.answer_parser_cls if continues else None),
            self.rules,
            parsers.name,
            parsers.marks,
            splits_text=not parsers.incremental,
            budget=parsers.budget,
            disagreed=parsers.count_disagreement,
        )

    def _as_list(self, prompt_token_ids: Sequence[int]) -> list[int]:
        """Return a prompt as vLLM's parsers want it, the same one for all choices."""
        if prompt_token_ids is not self._shared[0]:
            self._shared = prompt_token_ids, list(prompt_token_ids)
        return self._shared[1]

    def _raw_parser(self, prompt: list[int], full_cls: type[Parser] | None) -> RawParser:
        parser = full = self._new_parser(self._request)
        if full_cls is not None:
            full = self._new_parser(self._request, full_cls)
        whole = VllmParser(parser, full, self._request, prompt, self.rules)
        openings = held_from(self._parsers.settings, self.rules)
        if openings is None:
            return whole
        texts = self._new_parser(self._request, self._parsers.text_parser_cls)
        return HeldCalls(VllmParser(texts, texts, self._request, prompt, self.rules), whole, openings)

    def _new_parser(self, request: ChatCompletionRequest, cls: type[Parser] | None = None) -> Parser:
        parsers = self._parsers
        return (cls or parsers.parser_cls)(
            parsers.tokenizer,
            request.tools,
            chat_template_kwargs=self._template_kwargs,
            model_config=parsers.model_config,
        )


def load_tokenizer(files: Mapping[str, bytes]) -> Any:
    """Load a model's tokenizer for vLLM's parsers. Raises ParserUnusable."""
    # Directly from tokenizer.json, like the coordinator's own: some classes named in tokenizer_config.json build
    # another tokenizer from its vocabulary. Code of a model's repository is never imported.
    with folder_of(files) as folder:
        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ParserUnusable(f"The tokenizer cannot be loaded for the parsers: {error}") from error
    return get_cached_tokenizer(tokenizer)


def _template_kwargs(parsers: VllmParsers, request: ChatCompletionRequest) -> dict[str, Any]:
    requested = request.build_chat_params(None, "auto").chat_template_kwargs
    return dict(merge_kwargs(parsers.settings.default_chat_template_kwargs, requested))


def _as_request(work: Callable[[], T]) -> T:
    # Maps everything that vLLM raises for a request as its own server does.
    try:
        return work()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
        raise InvalidRequest(f"{where}: {first['msg']}" if where else first["msg"], param=where or None) from error
    except VLLMClientError as error:
        raise InvalidRequest(str(error.args[0]), param=getattr(error, "parameter", None)) from error
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InvalidRequest(str(error)) from error
