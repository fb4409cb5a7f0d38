"""The types of a request: its prompt and options, which every route translates to, and its results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tokenwire.coordinator.parsing.message import ParserPlan, Parsers
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.text.logprobs import ScoredPosition, TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.process.value_class import value_class
from tokenwire.protocol.engine_defaults import ENGINE_DEFAULTS
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that requests may name."""

    names: Sequence[str]
    root: str
    max_model_len: int
    max_token_id: int
    tokenizer_digest: str
    default_sampling_params: dict[str, Any]
    """The generation config's sampling defaults, with vLLM's names."""
    tokenizer: ModelTokenizer
    template: ChatTemplate
    token_texts: TokenTexts
    parsers: Parsers | None
    lora: pb.LoraAdapter | None = None
    """The LoRA adapter with this name; None for a model itself."""
    media: Sequence[pb.MediaKind] = ()
    """Which media prompts may have."""
    revision: ModelRevision = field(default=ModelRevision())
    """What the workers started with for which prompts are rendered and tokenized so."""
    tasks: Sequence[str] = ("generate",)
    """What its workers' engines do, with vLLM's names."""
    pooling: pb.PoolingModel | None = None
    """What there is to know of it if it pools; None: it generates."""
    base_model: str = ""
    """Name of the model that its workers serve: an adapter's base model, else its own."""

    name: str = field(init=False)
    """The first of its names, which responses show."""
    stop_token_ids: Sequence[int] = field(init=False)
    """Stop tokens of the generation config, which end every reply."""
    sampling_defaults: pb.SamplingParams = field(init=False, repr=False)
    """Sampling defaults except stop tokens. Read-only."""

    @property
    def adapter_id(self) -> int:
        """The id of its LoRA adapter, another one each time that is loaded; 0 without one."""
        return 0 if self.lora is None else self.lora.id

    def __post_init__(self) -> None:
        given = self.default_sampling_params
        defaults = pb.SamplingParams(**{name: given.get(name, value) for name, value in ENGINE_DEFAULTS.items()})
        object.__setattr__(self, "name", self.names[0])
        object.__setattr__(self, "base_model", self.base_model or self.name)
        object.__setattr__(self, "stop_token_ids", given.get("stop_token_ids", ()))
        object.__setattr__(self, "sampling_defaults", defaults)

    @property
    def knows_all_tokens(self) -> bool:
        """Whether each id that its tokenizer can return is in its vocabulary."""
        return self.tokenizer.largest_id <= self.max_token_id


@value_class
class KnownPrefix:
    """Ids with which a conversation starts, from the client."""

    token_ids: Sequence[int]
    message: int | None
    """Position of the assistant message that they end with; None: they end before the first."""
    param: str
    """The field of the ids, for error messages."""
    required: bool = False
    """Whether a prompt that does not start with them is an error."""


@value_class
class ExactHistory:
    """Makes a chat's prompt reuse the ids of earlier prompts and completions within a scope."""

    tenant: str = ""
    cache_salt: str | None = None
    conversation_id: str | None = None
    prefix: KnownPrefix | None = None
    keeps: bool = True
    """Whether the replies are stored for later requests."""


@value_class
class ChatPrompt:
    """Messages, rendered by the chat template."""

    messages: Sequence[Mapping[str, Any]]
    options: TemplateOptions = field(default=TemplateOptions())
    add_special_tokens: bool = False
    history: ExactHistory | None = None
    """None: the template renders the whole prompt."""


@value_class
class TextPrompt:
    """Text, which is tokenized."""

    text: str
    add_special_tokens: bool = True


@value_class
class TokenPrompt:
    """Ids, used as they are."""

    token_ids: Sequence[int]
    param: str = "prompt"
    """The field of the ids, for error messages."""


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@value_class
class Truncation:
    """Truncates a prompt that is too long, as requested."""

    length: int
    """Tokens to keep; -1: as many as fit in the model's context."""
    side: Literal["left", "right"] | None = None
    """The side to cut, including special tokens. None: the tokenizer's side of the text, keeping special tokens."""
    tokenizer_side: Literal["left", "right"] = "left"
    """On which side the tokenizer cuts: the left, unless the model pools."""


@value_class
class GenerationRequest:
    """One request of any route. Choice i of prompt p has index p * n + i."""

    request_id: str
    model: str
    prompts: Sequence[Prompt]
    sampling: pb.SamplingParams
    """As requested: absent fields have the model's defaults."""
    n: int = 1
    text: TextRules = field(default=TextRules())
    max_tokens_param: str | None = "max_tokens"
    """The field of max_tokens, for error messages; None: a value beyond the context is not an error."""
    priority: int = 0
    cache_salt: str | None = None
    conversation_id: str | None = None
    is_recorded: bool = True
    """Whether what it samples is kept, if its conversation is a session and sessions are recorded."""
    data_parallel_rank: int | None = None
    truncation: Truncation | None = None
    stream_interval: int = 1
    """Tokens of a choice per streamed chunk, except the first and the last."""
    returns_ids: bool = False
    """Whether the response has ids: then they are of one run, or the request fails."""
    repeats_prompt: bool = False
    """Whether each choice of the response begins with its prompt, or its ids."""
    streams: bool = False
    """Whether the output is sent as it is generated, and not kept until it is complete."""
    token_by_token: bool = False
    """Whether replies need tokens one by one, as some parsers of markup do."""
    reasoning_ended: bool | None = None
    """Whether a grammar applies from the first token; None leaves it to the engine's reasoning parser."""
    reasoning_parser_kwargs: Mapping[str, Any] | None = None
    media_options: str | None = None
    """Options for loading and processing its media, as JSON; None: the model's."""
    weights: WeightLimits | None = None
    """How old the weights of its tokens may be; None: no limit."""
    plan: ParserPlan | None = None
    """How the output is parsed; None: it is plain content."""


@dataclass(slots=True)
class Usage:
    """Token counts of a reply; completion tokens are those that the client received."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """Prompt tokens found in the worker's prefix cache; None: not requested."""
    created_cache_tokens: int | None = None
    """Prompt tokens added to the prefix cache; None: not reported by the engine."""
    multimodal_tokens: Mapping[str, int] | None = None
    """Prompt tokens of media, by modality; None: not requested, or there are none."""
    reasoning_tokens: int | None = None
    """Reasoning tokens of the completion; None without a reasoning parser."""

    def add_cache(self, counted: "Prefill | Usage") -> None:
        """Add what of the prompt was read from the cache, and what was written to it."""
        self.cached_tokens, self.created_cache_tokens = counted.cached_tokens, counted.created_cache_tokens


@value_class
class Prefill:
    """How a choice's prompt was computed."""

    cached_tokens: int
    created_cache_tokens: int | None = None
    logprobs: Iterable[ScoredPosition | None] | None = None
    """One entry per prompt token, the first one None, decoded as they are read; None: not requested."""


@value_class
class WeightSpan:
    """Output tokens [start, end) of a choice were sampled by weights of one version."""

    version: str
    start: int
    end: int


@value_class
class Finish:
    """Why a choice ended, in OpenAI's and vLLM's terms."""

    reason: str
    """stop, length, abort or repetition."""
    stop_reason: int | str | None = None
    """The stop string or stop id that matched; None for end of sequence."""
    kv_transfer_params: Any = None
    """What a prefill worker passes on to a decode worker."""
    resumed: bool = False
    """Whether it was resumed on another worker."""
    weight_versions: Sequence[WeightSpan] | None = None
    """The weight versions of all tokens; None if the worker does not label its weights."""
