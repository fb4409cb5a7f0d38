"""Records what is sampled for requests of sessions: each prompt and its choices become an event when they end."""

import asyncio
import logging
import os
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from weakref import WeakSet

from tokenwire.coordinator.fleet.sampled_tokens import SampledTokens
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.choice import Choice
from tokenwire.coordinator.text.template.pictures import as_stored
from tokenwire.coordinator.trajectories.counts import NodeCount, RecordedCounts
from tokenwire.coordinator.trajectories.events import (
    MessageParsed,
    RecordedChoice,
    RecordedTurn,
    RewardGiven,
    SessionOpened,
    pack_event,
)
from tokenwire.coordinator.trajectories.index import IdDigest, PromptMessages, SessionIndexes
from tokenwire.coordinator.trajectories.parameters import NamedParameters
from tokenwire.coordinator.trajectories.store import SessionKey, TrajectoryStore
from tokenwire.coordinator.types import ChatPrompt, GenerationRequest, Prompt, ServedModel
from tokenwire.process.value_class import value_class
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_NODE_BYTES = 8
_SETTLE_S = 1.0
"""How long a reader waits for turns whose reply has ended, and which are about to be stored."""
_STORED_AT_ONCE = 16
"""Choices, some milliseconds of work: those of a request that has more are stored in turns with others."""


@value_class
class RecordedRequest:
    """What is known of a request before it runs."""

    request: GenerationRequest
    model: ServedModel
    sampling: pb.SamplingParams
    """With the model's defaults."""
    prompts: Sequence[Sequence[int]]
    """The ids of each prompt."""
    record: RequestRecord


@dataclass(slots=True)
class _SampledChoice:
    sampled: SampledTokens
    choice: Choice | None = None
    node: str = ""
    """Once it is stored."""
    message: Mapping[str, Any] | None = None


class TurnRecording:
    """One request while it runs."""

    def __init__(self, recorder: "TrajectoryRecorder", key: SessionKey, share: str, request: RecordedRequest) -> None:
        self.ended = asyncio.Event()
        """Set when it is stored."""
        self._storing: Iterator[None] | None = None
        self._is_deleted = False
        self._recorder = recorder
        self._key = key
        self._share = share
        self._request = request
        self._started = recorder.clock() - request.record.duration_s
        n = request.request.n
        self._choices = [[_SampledChoice(SampledTokens(len(prompt))) for _ in range(n)] for prompt in request.prompts]

    def sampled(self, position: int) -> list[SampledTokens]:
        """Return where the tokens of a prompt's choices go."""
        return [each.sampled for each in self._choices[position]]

    def watch(self, position: int, choices: Sequence[Choice]) -> None:
        """Take the choices of a prompt, which know how they end."""
        for each, choice in zip(self._choices[position], choices, strict=True):
            each.choice = choice

    @property
    def is_complete(self) -> bool:
        """Whether all choices have ended."""
        every = [each.choice for choices in self._choices for each in choices]
        return all(choice is not None and choice.finish is not None for choice in every)

    def on_message(self, index: int, messages: Sequence[Mapping[str, Any]]) -> None:
        """Take a choice as the client got it; a parsed one may come after the end."""
        found = self._choices[index // self._request.request.n][index % self._request.request.n]
        if found.message is not None or not messages:
            return
        found.message = messages[-1] if len(messages) == 1 else {"role": "assistant", "messages": [*messages]}
        if found.node and not self._is_deleted:
            self._recorder.append(self._key, self._share, MessageParsed(found.node, found.message))

    def delete(self, key: SessionKey) -> None:
        """Store nothing from now on, if it is of this session, which is deleted."""
        self._is_deleted |= key == self._key

    def end(self) -> None:
        """Store what was sampled, soon if that is much. Raises nothing; safe more than once."""
        if self._storing is not None:
            return
        self._storing = self._steps(self._recorder.clock())
        if sum(map(len, self._choices)) <= _STORED_AT_ONCE:
            for _ in self._storing:
                pass
        else:
            self._recorder.take_turns(self._storing)

    def _steps(self, ended_at: float) -> Iterator[None]:
        """Store what was sampled, a choice or a prompt in each step."""
        try:
            parameters = self._recorder.parameters.of(self._request.sampling, len(self._choices))
            for position, prompt in enumerate(self._request.request.prompts):
                choices = []
                for each in self._choices[position]:
                    if each.choice is not None:
                        choices.append(self._recorded(each))
                        yield
                sampled = [each for each in choices if each.token_ids]
                if sampled and not self._is_deleted:
                    turn = self._turn(position, sampled, parameters, ended_at)
                    self._recorder.append_turn(self._key, self._share, turn, prompt)
        except Exception:
            log.exception("recording a turn of a session failed")
        finally:
            for each in chain.from_iterable(self._choices):
                each.choice = None  # which has the reply, which has this recording: none of them waits for a search
            self.ended.set()
            self._recorder.on_ended(self._key, self)

    def _turn(
        self, position: int, choices: Sequence[RecordedChoice], parameters: Mapping[str, Any], ended_at: float
    ) -> RecordedTurn:
        request, record = self._request.request, self._request.record
        ids = self._request.prompts[position]
        return RecordedTurn(
            request_id=request.request_id,
            model=self._request.model.base_model,
            adapter=self._request.model.name if self._request.model.lora is not None else None,
            adapter_id=self._request.model.adapter_id,
            choices=choices,
            prompt_ids=ids if isinstance(ids, array) else array("I", ids),
            sampling=parameters,
            started=self._started,
            first_token=None if record.first_token_s is None else self._started + record.first_token_s,
            ended=ended_at,
            workers=[*record.workers],
        )

    def _recorded(self, each: _SampledChoice) -> RecordedChoice:
        choice = each.choice
        assert choice is not None
        count = choice.gained
        token_ids = each.sampled.token_ids[:count]
        if len(token_ids) != count:
            raise ValueError(f"{len(token_ids)} tokens were recorded, and {count} returned")
        finish, failure = choice.finish, self._request.record.error
        if each.message is None and (finish is None or self._request.request.plan is None):
            text = self._request.model.tokenizer.decode(token_ids.tolist(), skip_special_tokens=True)
            each.message = {"role": "assistant", "content": text}
        each.node = os.urandom(_NODE_BYTES).hex()
        spans = choice.spans(count) if finish is None else finish.weight_versions
        return RecordedChoice(
            node=each.node,
            index=choice.index,
            token_ids=token_ids,
            logprobs=each.sampled.logprobs(count),
            finish=finish.reason if finish is not None else "abort" if failure is None else "error",
            stop_reason=None if finish is None else finish.stop_reason,
            spans=None if spans is None else [(span.version, span.start, span.end) for span in spans],
            message=each.message,
            resumed=finish is not None and finish.resumed,
        )


class TrajectoryRecorder:
    """Stores the turns of sessions, each as what it adds to an earlier one."""

    def __init__(self, store: TrajectoryStore, indexes: SessionIndexes, clock: Callable[[], float] = time.time) -> None:
        """`store` calls the `forget` of these indexes."""
        self.store = store
        self.clock = clock
        self.parameters = NamedParameters()
        self._indexes = indexes
        self._counts = RecordedCounts()
        self._running: defaultdict[SessionKey, set[TurnRecording]] = defaultdict(set)
        self._recordings: WeakSet[TurnRecording] = WeakSet()
        """Also those that have ended, as long as their replies may be parsed."""
        self._storing: set[asyncio.Task[None]] = set()

    def begin(self, key: SessionKey, share: str, request: RecordedRequest) -> TurnRecording:
        """Record a request of a session, which is about to be submitted."""
        turn = TurnRecording(self, key, share, request)
        self._running[key].add(turn)
        self._recordings.add(turn)
        return turn

    def on_ended(self, key: SessionKey, turn: TurnRecording) -> None:
        """Forget a request that has ended."""
        running = self._running[key]
        running.discard(turn)
        if not running:
            del self._running[key]

    def append(self, key: SessionKey, share: str, event: RecordedTurn | MessageParsed) -> None:
        """Store what was sampled in a session, if that can be: no reply waits for it."""
        self.store.append(key, share, pack_event(event))

    async def put(self, key: SessionKey, share: str, event: RewardGiven | SessionOpened) -> None:
        """Store what a client says of a session, and wait for it. Raises Unavailable if it is not stored."""
        await self.store.put(key, share, pack_event(event))

    def append_turn(self, key: SessionKey, share: str, turn: RecordedTurn, prompt: Prompt) -> None:
        """Store a turn that has its whole prompt, as what it adds to an earlier one."""
        index, whole = self._indexes.of(key), turn.prompt_ids
        conversation = None
        if isinstance(prompt, ChatPrompt):
            conversation = PromptMessages([as_stored(each) for each in prompt.messages], prompt.options.tools)
        run, earlier = self._counts.add(key, len(turn.choices))
        changes: dict[str, Any] = {"run": run, "earlier": earlier}
        digest = IdDigest(turn.policy)
        base = index.base_of(whole, digest)
        if base is not None:
            changes |= {"base": base[0], "prompt_ids": whole[base[1] :]}
        if conversation is not None:
            changes |= _new_messages(conversation, index.message_base(conversation))
        self._indexes.put(key, digest, [(choice.node, choice.token_ids) for choice in turn.choices], conversation)
        self.append(key, share, replace(turn, **changes))

    def recorded(self, key: SessionKey) -> NodeCount | None:
        """Return how many nodes of a session were recorded, if any: ask before reading them."""
        return self._counts.find(key)

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session, to which requests that run now add nothing more; return whether there was one.

        Raises Unavailable.
        """
        for turn in self._recordings:
            turn.delete(key)
        self._counts.forget(key)
        return await self.store.delete(key)

    def take_turns(self, steps: Iterator[None]) -> None:
        """Take steps with turns for others in between."""
        task = asyncio.create_task(_in_turns(steps))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def close(self) -> None:
        """Store what has ended, and close the store."""
        await asyncio.gather(*self._storing)
        await self.store.close()

    async def settled(self, key: SessionKey) -> None:
        """Wait for the turns of a session whose replies have ended: their clients may be faster than this process."""
        ending = [turn.ended.wait() for turn in self._running.get(key, ()) if turn.is_complete]
        if ending:
            await asyncio.wait([asyncio.ensure_future(each) for each in ending], timeout=_SETTLE_S)


async def _in_turns(steps: Iterator[None]) -> None:
    for number, _ in enumerate(steps, 1):
        if not number % _STORED_AT_ONCE:
            await asyncio.sleep(0)


def _new_messages(conversation: PromptMessages, base: tuple[str, int, bool] | None) -> dict[str, Any]:
    if base is None:
        return {"messages": conversation.messages, "tools": conversation.tools}
    node, shared, same_tools = base
    return {
        "messages": conversation.messages[shared:],
        "message_base": node,
        "message_start": shared,
        "tools": None if same_tools else conversation.tools,
        "same_tools": same_tools,
    }
