"""Generation: takes a request to its choices. Checks, submits, and aborts."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.fleet.request_handle import Fleet, Placement, RequestHandle
from tokenwire.coordinator.generation import limits
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.prompts import PreparedPrompt, prepare_prompt
from tokenwire.coordinator.generation.registry import ModelDirectory
from tokenwire.coordinator.history.recording import Recording
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.output.choice import Choice, Reply
from tokenwire.coordinator.text.detokenizer import TextStreams
from tokenwire.coordinator.text.logprobs import LogprobDecoder
from tokenwire.coordinator.types import GenerationRequest, Prompt, ServedModel, TokenPrompt, Truncation
from tokenwire.errors import DeadlineExceeded
from tokenwire.for_each import cooperatively, for_each
from tokenwire.v1 import inference_pb2 as pb

ENGINE_DEFAULTS: dict[str, float | int] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}
"""What holds where neither the request nor the model's generation config says anything, as in vLLM."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request whose prompts are ids and whose parameters were checked."""

    request: GenerationRequest
    model: ServedModel
    prompts: Sequence[PreparedPrompt]
    recording: Recording | None = None
    """Listens to the choices, where they are kept for later requests."""

    @property
    def choices(self) -> int:
        """How many choices the reply has."""
        return len(self.prompts) * self.request.n

    @property
    def asked_stop_token_ids(self) -> frozenset[int]:
        """Stop tokens that the request asked for, without those that the model ends its replies with."""
        return frozenset(self.request.sampling.stop_token_ids).difference(_own_stop_token_ids(self.model))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    def prompt_of(self, choice: int) -> PreparedPrompt:
        """Return the prompt of the choice with this index."""
        return self.prompts[choice // self.request.n]

    def text_of(self, choice: int) -> str:
        """Return the text of a choice's prompt; one that came as ids is decoded."""
        prompt = self.prompt_of(choice)
        if prompt.text is not None:
            return prompt.text
        return self.model.tokenizer.decode(prompt.token_ids, skip_special_tokens=False)

    def chat_text(self) -> str | None:
        """Return the text of a chat's prompt; None where no template rendered it."""
        return None if self.prompts[0].text is None and self.prompts[0].conversation is None else self.text_of(0)


class Run:
    """The submitted parts of one request."""

    __slots__ = ("_parts", "_timer")

    def __init__(self) -> None:
        self._parts: list[RequestHandle] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, part: RequestHandle) -> None:
        """Add a part."""
        self._parts.append(part)

    def abort(self) -> None:
        """End whatever still runs. Safe at any time, more than once."""
        if self._timer is not None:
            self._timer.cancel()
        for_each(self._parts, lambda part: part.abort())

    def end_after(self, seconds: float, reply: Reply) -> None:
        """End everything when its time is over, and tell the reply."""

        def end() -> None:
            self.abort()
            reply.fail(DeadlineExceeded(f"The request took longer than {seconds:g} s."))

        self._timer = asyncio.get_running_loop().call_later(seconds, end)

    def explain(self) -> str:
        """Say which workers have the parts and why, for a debug header."""
        return ", ".join(filter(None, (part.explain() for part in self._parts)))


class Generation:
    """The one service between routes and workers."""

    def __init__(
        self,
        fleet: Fleet,
        models: ModelDirectory,
        history: TokenHistory,
        timeout_s: float | None = None,
        check_open: Callable[[str, int], None] = lambda model, adapter_id: None,
        takes_transfers: bool = False,
    ) -> None:
        """`timeout_s` is how long a request may take, where its client is not less patient.

        `check_open` raises where the fleet would refuse a request anyway: under overload prompts cost nothing then.
        `takes_transfers` says whether requests may have engines fetch each other's memory.
        """
        self._timeout_s = timeout_s
        self._check_open = check_open
        self._takes_transfers = takes_transfers
        self._fleet = fleet
        self._models = models
        self._history = history

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Render, tokenize and check. Raises InvalidRequest, NotFound or Unavailable."""
        model = await self._models.wait_for(request.model)
        self.check_transfers(request.sampling)
        self._check_open(model.fleet_name, 0 if model.adapter is None else model.adapter.lora.id)
        _fill_defaults(request.sampling, model)
        limits.check_request(request, model)
        prompts = []
        async for prompt in cooperatively(request.prompts):
            prepared = await self.prepare_prompt(prompt, model, request.truncation, request.sampling.max_tokens)
            param = prompt.param if isinstance(prompt, TokenPrompt) else "prompt"
            limits.check_length(len(prepared.token_ids), model)
            max_tokens = limits.resolve_max_tokens(request.sampling, len(prepared.token_ids), model)
            limits.check_min_tokens(request.sampling.min_tokens, max_tokens)
            # Ids that are re-used were checked when they were new.
            new_ids = prepared.token_ids[prepared.reused :] if prepared.reused else prepared.token_ids
            limits.check_ids(new_ids, model, param)
            prompts.append(prepared)
        return PreparedRequest(request, model, prompts)

    def check_transfers(self, sampling: pb.SamplingParams) -> None:
        """Check what is asked of engines' transfers among each other. Raises InvalidRequest."""
        if not self._takes_transfers:
            limits.check_no_transfer(sampling)

    async def prepare_prompt(
        self, prompt: Prompt, model: ServedModel, truncation: Truncation | None = None, max_tokens: int = 0
    ) -> PreparedPrompt:
        """Turn one prompt into ids, which are not checked; see `prepare_prompt`. Raises InvalidRequest."""
        return await prepare_prompt(prompt, model, truncation, max_tokens, self._history)

    async def start(
        self,
        prepared: PreparedRequest,
        reply: Reply,
        context: RequestContext | None = None,
        timeout_s: float | None = None,
    ) -> Run:
        """Submit every prompt; the reply gets all choices, or a timeout. The context's record gets their workers.

        Raises Unavailable, Overloaded or Forbidden; then nothing runs.
        """
        context = context or RequestContext()
        caller, record = context.caller, context.record
        caller.check_model(prepared.request.model or prepared.model.names[0], *prepared.model.names)
        run = Run()
        texts = TextStreams(prepared.model.tokenizer, prepared.request.text, prepared.request.sampling.min_tokens)
        limits_s = [seconds for seconds in (timeout_s, self._timeout_s) if seconds is not None]
        if prepared.recording is not None:
            reply = prepared.recording.wrap(reply)
        try:
            async for position, submit in cooperatively(enumerate(self.submits(prepared))):
                submit.priority = caller.priority(submit.priority)
                submit.trace_headers.update(record.trace_headers)
                placement = Placement(
                    joins=position > 0,
                    tenant=caller.tenant,
                    on_placed=record.on_placed,
                    exact=prepared.request.returns_ids,
                )
                run.add(self._submit(prepared, position, submit, texts, reply, placement))
        except BaseException:
            run.abort()
            raise
        if limits_s:
            run.end_after(min(limits_s), reply)
        caller.charge(prepared.prompt_tokens)
        return run

    def submits(self, prepared: PreparedRequest) -> Iterator[pb.Submit]:
        """Return what workers are to get, one message for each prompt; slots are assigned when it is sent."""
        return (self._message(prepared, position) for position in range(len(prepared.prompts)))

    def _message(self, prepared: PreparedRequest, position: int) -> pb.Submit:
        request, token_ids, adapter = prepared.request, prepared.prompts[position].token_ids, prepared.model.adapter
        sampling = pb.SamplingParams()
        sampling.CopyFrom(request.sampling)
        sampling.max_tokens = limits.resolve_max_tokens(sampling, len(token_ids), prepared.model)
        return pb.Submit(
            request_id=request.request_id if len(prepared.prompts) == 1 else f"{request.request_id}-{position}",
            prompt_token_ids=token_ids,
            sampling_params=sampling,
            priority=request.priority,
            cache_salt=request.cache_salt,
            lora=None if adapter is None else adapter.lora,
            session_id=request.session_id,
            data_parallel_rank=request.data_parallel_rank,
            reasoning_ended=request.reasoning_ended,
            reasoning_parser_kwargs_json=_json(request.reasoning_parser_kwargs),
        )

    def _submit(
        self,
        prepared: PreparedRequest,
        position: int,
        submit: pb.Submit,
        texts: TextStreams,
        reply: Reply,
        placement: Placement,
    ) -> RequestHandle:
        request, model, token_ids = prepared.request, prepared.model, prepared.prompts[position].token_ids
        choices = [
            Choice(
                position * request.n + i,
                texts.stream(token_ids),
                reply,
                lambda: LogprobDecoder(model.token_texts),
                request.token_by_token,
            )
            for i in range(request.n)
        ]
        return self._fleet.submit(model.fleet_name, submit, choices, placement)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def _fill_defaults(sampling: pb.SamplingParams, model: ServedModel) -> None:
    defaults = model.default_sampling_params
    for name, value in ENGINE_DEFAULTS.items():
        if not sampling.HasField(name):
            setattr(sampling, name, defaults.get(name, value))
    extra = [token_id for token_id in _own_stop_token_ids(model) if token_id not in sampling.stop_token_ids]
    sampling.stop_token_ids.extend(extra)


def _own_stop_token_ids(model: ServedModel) -> Sequence[int]:
    ids: Sequence[int] = model.default_sampling_params.get("stop_token_ids", ())
    return ids
