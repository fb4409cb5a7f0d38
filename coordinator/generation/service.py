"""Generation: prepares a request's prompts, submits them to the fleet, and aborts them.

One file, since what is prepared, what is submitted and what is aborted are the same request.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.auth.rate_limit import Account, Reservation
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.request_handle import Fleet, Placement, RequestHandle
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.generation import limits
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.growing_reply import GrowingReply
from tokenwire.coordinator.generation.media import MediaPrompts
from tokenwire.coordinator.generation.picture_prompts import PictureChat, expand_chat
from tokenwire.coordinator.generation.prompts import PreparedPrompt, prepare_prompt
from tokenwire.coordinator.generation.request_cost import RequestCost
from tokenwire.coordinator.generation.token_quota import fit_quota
from tokenwire.coordinator.history.prefix_watch import PrefixWatch, WatchedPrompt
from tokenwire.coordinator.history.request_history import HistoryWriter
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.http.backpressure import BodyMemory
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.choice import Choice, Reply, SharedPromptLogprobs
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.output.whole_tokens import WholeTokens
from tokenwire.coordinator.text.detokenizer import StoppingTextStream, TextStreams
from tokenwire.coordinator.text.logprobs import LogprobDecoder
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.text_length import text_chars
from tokenwire.coordinator.trajectories.recording import RecordedRequest, TrajectoryRecorder, TurnRecording
from tokenwire.coordinator.types import ChatPrompt, GenerationRequest, Prompt, ServedModel, TokenPrompt, Truncation
from tokenwire.errors import DeadlineExceeded, InvalidRequest
from tokenwire.process.fair_turns import FairTurns
from tokenwire.process.for_each import for_each
from tokenwire.v1 import inference_pb2 as pb

_PROMPTS_BETWEEN_YIELDS = 64
"""Prompts prepared or submitted before yielding to the event loop."""
_MANY_CHOICES = 64
"""Sequences of a prompt that are made in a third of a millisecond; a request for more has a turn of its own."""
_LITTLE_TEXT = 2**20
"""Characters that choices may repeat of a prompt without being counted."""
_LARGE_PARAMETERS = 64 * 1024
"""Bytes from which on it matters how often parameters are kept."""


@dataclass(slots=True)
class PreparedRequest:
    """A request with its prompts as ids and its parameters checked."""

    request: GenerationRequest
    model: ServedModel
    sampling: pb.SamplingParams
    """As requested, with the model's defaults."""
    prompts: Sequence[PreparedPrompt]
    max_tokens: Sequence[int]
    """Of the replies to each prompt: as requested, or what fits after it."""
    size_bytes: int = 0
    """What the request takes until its reply begins."""
    placed_bytes: int = 0
    """What it takes from when it is placed until its reply is sent, unless that grows."""
    growth: tuple[int, int] | None = None
    """The tokens of the reply that are in that, and the bytes of each that may come beyond; None: none may."""
    reasoning_ended: bool | None = None
    """Whether a grammar applies from the first token; None leaves it to the engine's reasoning parser."""
    is_recorded: bool = False
    """Whether its session's trajectory gets it."""
    choices: int = field(init=False)
    """The number of choices of the reply."""
    prompt_tokens: int = field(init=False)
    """Tokens of all prompts."""
    reused_tokens: int = field(init=False)
    """Those of them that are ids of earlier prompts and completions."""
    has_large_parameters: bool = field(init=False)
    """Whether it matters how often its parameters are kept: the request's are these."""
    history_writer: HistoryWriter | None = field(init=False)
    """Stores the choices for later requests; None if they are not stored."""
    recording: TurnRecording | None = field(default=None, init=False)
    """What it adds to its session, from its start on."""
    _decoded: tuple[PreparedPrompt, str] | None = field(default=None, init=False)
    """The last prompt that was decoded, with its text: all of its choices may begin with it."""

    def __post_init__(self) -> None:
        self.choices = len(self.prompts) * self.request.n
        self.prompt_tokens = sum([len(prompt.token_ids) for prompt in self.prompts])
        self.reused_tokens = sum([prompt.reused for prompt in self.prompts])
        self.has_large_parameters = self.request.sampling is self.sampling
        self.history_writer = self._history_writer()

    def _history_writer(self) -> HistoryWriter | None:
        prompt, parsed = self.prompts[0], self.request.plan is not None
        if prompt.history is None:
            return None
        token_ids = prompt.token_ids if prompt.media is None else prompt.media.token_ids
        return prompt.history.writer(token_ids, self.choices, parsed=parsed, end_token_ids=self.model.stop_token_ids)

    @property
    def keeps_messages(self) -> bool:
        """Whether `keep` stores anything: a stream need not be joined otherwise."""
        return self.history_writer is not None or self.is_recorded

    def keep(self, index: int, messages: Sequence[ChatMessage]) -> None:
        """Store a choice as the messages that the client got, for later requests and in its session."""
        if self.history_writer is not None:
            self.history_writer.keep(index, messages)
        if self.recording is not None:
            self.recording.on_message(index, messages)

    @property
    def multimodal_tokens(self) -> dict[str, int] | None:
        """Tokens of the first prompt's media, by modality; None if it has none."""
        media = self.prompts[0].media
        return None if media is None else media.tokens

    def id_of(self, position: int) -> str:
        """Return the id of the submission of one prompt."""
        request_id = self.request.request_id
        return request_id if len(self.prompts) == 1 else f"{request_id}-{position}"

    def prompt_of(self, choice: int) -> PreparedPrompt:
        """Return the prompt of the choice with this index."""
        return self.prompts[choice // self.request.n]

    def text_of(self, choice: int) -> str:
        """Return the text of a choice's prompt; one sent as ids is decoded."""
        prompt = self.prompt_of(choice)
        if prompt.text is not None:
            return prompt.text
        if self._decoded is None or self._decoded[0] is not prompt:
            self._decoded = prompt, self.model.tokenizer.decode(prompt.token_ids, skip_special_tokens=False)
        return self._decoded[1]

    def chat_text(self) -> str | None:
        """Return the text of a chat's prompt; None if no template rendered it."""
        return None if self.prompts[0].text is None and self.prompts[0].history is None else self.text_of(0)


@dataclass(slots=True)
class GenerationHandle:
    """The handle of a request."""

    handles: list[RequestHandle] = field(default_factory=list)
    """The submissions of its prompts."""
    reservation: Reservation | None = None
    """The tokens that it took from its caller's quota; None: that has no limit."""
    timer: asyncio.TimerHandle | None = None
    """Its timeout."""
    recording: TurnRecording | None = None
    """What it adds to its session; None: it is not recorded."""

    def abort(self) -> None:
        """Abort what still runs. Safe at any time, more than once."""
        if self.timer is not None:
            self.timer.cancel()
        for_each(self.handles, lambda handle: handle.abort())

    def settle(self, tokens: int) -> None:
        """Give back what the request reserved and did not use of its caller's tokens, and end its recording.

        Safe more than once.
        """
        if self.recording is not None:
            self.recording.end()
        if self.reservation is not None:
            self.reservation.settle(tokens)

    def explain(self) -> str:
        """Return which workers have the parts and why, for a debug header."""
        return ", ".join(filter(None, (handle.explain() for handle in self.handles)))

    def start_timer(self, seconds: float, fail: Callable[[DeadlineExceeded], None], error: DeadlineExceeded) -> None:
        """Abort the request after so many seconds, unless it has ended, and fail its reply."""
        self.timer = asyncio.get_running_loop().call_later(seconds, self._time_out, fail, error)

    def _time_out(self, fail: Callable[[DeadlineExceeded], None], error: DeadlineExceeded) -> None:
        self.abort()
        fail(error)


class GenerationService:
    """The one service between routes and workers."""

    def __init__(
        self,
        fleet: Fleet,
        history: TokenHistory,
        settings: ApiSettings | None = None,
        limited: Fleet | None = None,
        media: MediaPrompts | None = None,
        recorder: TrajectoryRecorder | None = None,
    ) -> None:
        """`limited` takes the requests that limit how old weights may be; None: the fleet does. `media` is for models
        that take some. `recorder` records the requests of sessions; None: nothing does.
        """
        self.media = media
        """The pictures of prompts; None: there are none."""
        self.prefixes = PrefixWatch()
        """The last prompts of sessions."""
        self._limited = limited or fleet
        self._settings = settings or ApiSettings()
        self._fleet = fleet
        self._history = history
        self.recorder = recorder
        """What records sessions; None: nothing does."""
        self._large = FairTurns(1, 1)
        """At submitting requests of many sequences for a prompt, which are made at once."""

    async def close(self) -> None:
        """Close connections for fetching media."""
        if self.media is not None:
            await self.media.loader.close()

    async def prepare(
        self,
        request: GenerationRequest,
        model: ServedModel,
        caller: Caller = ANYBODY,
        submits: bool = True,
        body: BodyMemory | None = None,
    ) -> PreparedRequest:
        """Render, tokenize and check a request for a model. Raises InvalidRequest or Unavailable.

        submits: whether the queue must have space for it. body: whose turn others get while media are waited for.
        """
        recorded, params = self._is_recorded(request), self._checked_params(request, model, caller, submits)
        cost = RequestCost(request, params, model)
        prompts, max_tokens = list[PreparedPrompt](), list[int]()
        options, salt = request.media_options, request.cache_salt
        prepare = partial(self.prepare_prompt, media_options=options, cache_salt=salt, must_fit=True, body=body)
        for position, prompt in enumerate(request.prompts):
            prepared = await prepare(prompt, model, request.truncation, caller, max_tokens=params.max_tokens)
            if prepared.chat is not None:
                request = replace(request, prompts=[prepared.chat])
            param = prompt.param if isinstance(prompt, TokenPrompt) else "prompt"
            known = len(prepared.token_ids) if prepared.is_tokenized and model.knows_all_tokens else prepared.reused
            max_tokens.append(limits.check_prompt(prepared.token_ids, known, params, model, param))
            chars = len(prepared.text or "")
            if request.repeats_prompt and prepared.text is None:
                chars = await text_chars(model.tokenizer, prepared.token_ids, _LITTLE_TEXT // request.n)
            cost.add_prompt(len(prepared.token_ids), max_tokens[-1], chars)
            cost.check(self._settings.max_request_bytes)
            prompts.append(prepared)
            if position:
                await _yield_to_others(position)
        ended = request.reasoning_ended
        if request.plan is not None:
            ended = request.plan.reasoning_ended(prompts[0].new_ids)
        if cost.parameter_bytes > _LARGE_PARAMETERS:
            request = replace(request, sampling=params)  # so that its own are not kept beside these
        size, placed, growth = cost.size_bytes, cost.placed_bytes, cost.growth
        bounded = max_tokens if growth is None else cost.bounded(max_tokens, self._settings.max_request_bytes)
        return PreparedRequest(request, model, params, prompts, bounded, size, placed, growth, ended, recorded)

    def _checked_params(
        self, request: GenerationRequest, model: ServedModel, caller: Caller, submits: bool
    ) -> pb.SamplingParams:
        """Check all that does not depend on the prompts; return the parameters, with the model's defaults."""
        params = _with_defaults(request.sampling, model)
        self.check_transfers(request.sampling)
        if submits:  # checked first, so that under overload a request that will be rejected is not tokenized
            self._check_open(request, model, caller)
        limits.check_request(request, params, model)
        return params

    def _check_open(self, request: GenerationRequest, model: ServedModel, caller: Caller) -> None:
        placement = Placement(tenant=caller.share, weight=caller.weight, weights=request.weights)
        fleet = self._fleet if request.weights is None else self._limited
        fleet.check_open(model.base_model, model.adapter_id, placement)

    def check_transfers(self, sampling: pb.SamplingParams) -> None:
        """Check that KV transfer parameters are allowed. Raises InvalidRequest."""
        if not self._settings.kv_transfer_params:
            limits.check_no_transfer(sampling)

    async def prepare_prompt(
        self,
        prompt: Prompt,
        model: ServedModel,
        truncation: Truncation | None = None,
        caller: Caller = ANYBODY,
        media_options: str | None = None,
        max_tokens: int = 0,
        must_fit: bool = False,
        cache_salt: str | None = None,
        body: BodyMemory | None = None,
    ) -> PreparedPrompt:
        """Turn one prompt into unchecked ids; those of media are expanded. See `prepare_prompt` and `prepare`.

        Raises InvalidRequest, or what media may raise.
        """
        items: Sequence[MediaContent] = ()
        if model.media and self.media is not None and isinstance(prompt, ChatPrompt):
            prompt, items = await self.media.load(prompt, model, caller.tenant, caller.share, body)
        prepared = await prepare_prompt(prompt, model, truncation, max_tokens, self._history, must_fit)
        if self.media is None or not items or not isinstance(prompt, ChatPrompt):
            return prepared
        if truncation is not None:
            raise InvalidRequest("A prompt with pictures cannot be truncated.", param="truncate_prompt_tokens")
        chat = PictureChat(prompt, items, model, media_options, cache_salt, caller.share)
        return await expand_chat(self.media, prepared, chat, must_fit, body)

    async def start(self, prepared: PreparedRequest, reply: Reply, context: RequestContext) -> GenerationHandle:
        """Submit every prompt, and record it; the reply gets all choices until the deadline.

        The handle is to be settled when the request ends. Raises InvalidRequest, DeadlineExceeded, Unavailable or
        Overloaded after aborting what was submitted and giving back what was reserved.
        """
        caller, record, model, request = context.caller, context.record, prepared.model, prepared.request
        _record(record, prepared)
        max_tokens, handle = await _reserve(prepared, caller.account)
        if prepared.history_writer is not None:
            reply = prepared.history_writer.wrap(reply)
        watched = self._watched(request, caller, record)
        if watched is not None:
            reply = watched.wrap(reply)
        handle.recording = self._recording(prepared, caller, record)
        context.memory, reply = _claim(prepared, caller, reply)
        placement = _placement(prepared, context)
        fleet = self._fleet if request.weights is None else self._limited
        texts = TextStreams(model.tokenizer, request.text, prepared.sampling.min_tokens)
        try:
            if context.deadline is not None:
                handle.start_timer(context.time_for_reply_s(), reply.fail, context.deadline_error)
            parts = _parts(prepared, texts, reply, max_tokens, context)
            if request.n <= _MANY_CHOICES:
                await _submit(fleet, prepared.model, parts, placement, handle.handles)
            else:
                async with self._large.turn(caller.share):
                    await asyncio.sleep(0)  # the next one begins in the next turn of the loop
                    # What is refused has not been made.
                    fleet.check_open(model.base_model, model.adapter_id, placement, prepared.choices)
                    await _submit(fleet, prepared.model, parts, placement, handle.handles)
            if watched is not None:  # its messages were rendered, so they can be read
                watched.compare(model, prepared.prompts[0].token_ids, request.cache_salt, prepared.prompts[0].history)
        except BaseException:
            handle.abort()
            handle.settle(0)
            raise
        context.body.release()
        return handle

    def _watched(self, request: GenerationRequest, caller: Caller, record: RequestRecord) -> WatchedPrompt | None:
        """Return what compares a session's prompt with the last ones; None for other requests, and for batches."""
        if not request.conversation_id or len(request.prompts) > 1:
            return None
        return WatchedPrompt(self.prefixes, record, caller.tenant, request.conversation_id, request.prompts[0])

    def _is_recorded(self, request: GenerationRequest) -> bool:
        """Return whether a request names a session, returns samples, and any are recorded."""
        return self.recorder is not None and request.is_recorded and bool(request.conversation_id)

    def _recording(self, prepared: PreparedRequest, caller: Caller, record: RequestRecord) -> TurnRecording | None:
        """Return what records a request; None if it is not recorded."""
        request = prepared.request
        if self.recorder is None or request.conversation_id is None or not prepared.is_recorded:
            return None
        prompts = [prompt.token_ids for prompt in prepared.prompts]
        recorded = RecordedRequest(request, prepared.model, prepared.sampling, prompts, record)
        prepared.recording = recording = self.recorder.begin(
            (caller.tenant, request.conversation_id), caller.share, recorded
        )
        if prepared.history_writer is not None:
            prepared.history_writer.on_message = recording.on_message
        return recording

    def submits(self, prepared: PreparedRequest, caller: Caller) -> Iterator[pb.Submit]:
        """Return the workers' messages, one for each prompt; slots are assigned when they are sent."""
        return (
            _submission(prepared, position, prepared.max_tokens, caller).message().submit
            for position in range(len(prepared.prompts))
        )


def _parts(
    prepared: PreparedRequest,
    texts: TextStreams,
    reply: Reply,
    max_tokens: Sequence[int],
    context: RequestContext,
) -> Iterator[tuple[Submission, list[Choice]]]:
    """Yield what is submitted of each prompt, with the listeners of its sequences, made as it is asked for."""
    for position in range(len(prepared.prompts)):
        submission = _submission(prepared, position, max_tokens, context.caller, context.record.trace_headers)
        choices = _choices(prepared, position, texts, reply)
        if prepared.recording is not None:
            submission.sampled = prepared.recording.sampled(position)
            prepared.recording.watch(position, choices)
        yield submission, choices


async def _submit(
    fleet: Fleet,
    model: ServedModel,
    parts: Iterator[tuple[Submission, list[Choice]]],
    placement: Placement,
    handles: list[RequestHandle],
) -> None:
    """Submit the parts of a request, and add their handles."""
    for position, (submission, choices) in enumerate(parts):
        if position == 1:
            placement = replace(placement, joins=True)
        handles.append(fleet.submit(model.base_model, submission, choices, placement))
        await _yield_to_others(position)


def _claim(prepared: PreparedRequest, caller: Caller, reply: Reply) -> tuple[MemoryClaim, Reply]:
    """Return what a request is to claim, and its reply, which claims more if it may become longer."""
    claim = MemoryClaim(prepared.placed_bytes, caller.share, caller.weight)
    return claim, reply if prepared.growth is None else GrowingReply(reply, claim, *prepared.growth)


def _placement(prepared: PreparedRequest, context: RequestContext) -> Placement:
    return Placement(
        tenant=context.caller.share,
        weight=context.caller.weight,
        memory=context.memory,
        sequence_bytes=math.ceil(prepared.size_bytes / prepared.choices),
        on_placed=context.record.on_placed,
        exact=prepared.request.returns_ids,
        revision=prepared.model.revision,
        weights=prepared.request.weights,
    )


async def _reserve(prepared: PreparedRequest, account: Account | None) -> tuple[Sequence[int], GenerationHandle]:
    """Reserve the tokens of a request; return the maximum tokens of the replies to each prompt, and its handle.

    Raises InvalidRequest or Overloaded.
    """
    quota = None if account is None else account.limits.tokens_per_minute
    if account is None or quota is None:
        return prepared.max_tokens, GenerationHandle()
    max_tokens, tokens = fit_quota(
        prepared.request, prepared.sampling, prepared.prompt_tokens, prepared.max_tokens, quota
    )
    return max_tokens, GenerationHandle(reservation=await account.reserve(tokens))


def _record(record: RequestRecord, prepared: PreparedRequest) -> None:
    """Record a request that is about to be submitted."""
    record.request_id, record.model = prepared.request.request_id, prepared.model.base_model
    record.choices, record.prompt_tokens = prepared.choices, prepared.prompt_tokens
    record.reused_tokens = prepared.reused_tokens
    record.submitted_at = time.monotonic()
    if record.keeps_prompt:
        record.prompt = prepared.text_of(0)


async def _yield_to_others(position: int) -> None:
    """Yield to the event loop after every few prompts."""
    if position % _PROMPTS_BETWEEN_YIELDS == _PROMPTS_BETWEEN_YIELDS - 1:
        await asyncio.sleep(0)


def _with_defaults(requested: pb.SamplingParams, model: ServedModel) -> pb.SamplingParams:
    """Return sampling parameters with the model's defaults for those that a request does not set."""
    sampling = pb.SamplingParams()
    sampling.CopyFrom(model.sampling_defaults)
    sampling.MergeFrom(requested)
    if model.stop_token_ids:
        sampling.stop_token_ids.extend([each for each in model.stop_token_ids if each not in requested.stop_token_ids])
    return sampling


def _choices(prepared: PreparedRequest, position: int, texts: TextStreams, reply: Reply) -> list[Choice]:
    """Return the listeners of a prompt's sequences."""
    request, model, token_ids = prepared.request, prepared.model, prepared.prompts[position].token_ids
    decoder = partial(LogprobDecoder, model.token_texts, _most_width(prepared.sampling))
    scored = decoder if _is_scored(prepared.sampling) else None
    prompt_logprobs = SharedPromptLogprobs(decoder) if prepared.sampling.HasField("prompt_logprobs") else None
    choices = []
    for index in range(position * request.n, (position + 1) * request.n):
        text, whole = texts.stream(token_ids), None
        if request.token_by_token and isinstance(text, StoppingTextStream):
            whole = WholeTokens(text, reply)
        choices.append(Choice(index, whole or text, whole or reply, scored, request.token_by_token, prompt_logprobs))
    return choices


def _is_scored(sampling: pb.SamplingParams) -> bool:
    """Return whether a worker sends log-probabilities for each token of a reply."""
    return sampling.HasField("logprobs") or bool(sampling.logprob_token_ids)


def _most_width(sampling: pb.SamplingParams) -> int | None:
    """Return the most log-probabilities of a token that a worker sends, with its own; None: of the vocabulary."""
    counts = (sampling.logprobs, sampling.prompt_logprobs, len(sampling.logprob_token_ids))
    return None if min(counts) < 0 else 1 + max(counts)


def _submission(
    prepared: PreparedRequest,
    position: int,
    max_tokens: Sequence[int],
    caller: Caller = ANYBODY,
    trace_headers: Mapping[str, str] | None = None,
) -> Submission:
    """Return what submits a prompt to a worker: complete, except for what depends on that worker.

    max_tokens: of the replies to each prompt.
    """
    request, kwargs = prepared.request, prepared.request.reasoning_parser_kwargs
    min_priority, media = caller.min_priority, prepared.prompts[position].media
    takes_turns = media is not None or prepared.sampling.HasField("structured_outputs")
    return Submission(
        request_id=prepared.id_of(position),
        prompt_token_ids=prepared.prompts[position].token_ids,
        sampling_params=prepared.sampling,
        max_tokens=max_tokens[position],
        media=media,
        priority=request.priority if min_priority is None else max(request.priority, min_priority),
        cache_salt=request.cache_salt,
        lora=prepared.model.lora or pb.LoraAdapter(),
        session_id=request.conversation_id,
        data_parallel_rank=request.data_parallel_rank,
        reasoning_ended=prepared.reasoning_ended,
        reasoning_parser_kwargs_json=None if kwargs is None else json.dumps(kwargs),
        trace_headers=trace_headers,
        tenant=caller.share if takes_turns else "",
    )
