"""A request of a session becomes a turn when it ends, with what its client was sent."""

import asyncio
import math
from typing import Any

import pytest

from tests.coordinator.api.replies import ScriptedPlan
from tests.coordinator.fakes import ids, request_context, served_model, token_history
from tests.coordinator.generation.fakes import FakeFleet
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.generation.service import GenerationHandle, GenerationService
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.trajectories.events import unpack_event
from tokenwire.coordinator.trajectories.graph import SessionGraph, build_graph
from tokenwire.coordinator.trajectories.index import SessionIndexes
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore, SessionKey
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, GenerationRequest, Prompt, TokenPrompt
from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb

CALLER = Caller(tenant="acme", share="acme")
KEY = ("acme", "s")
LENGTH = pb.Finish(reason=pb.FINISH_REASON_LENGTH)


class RecordedService:
    """Generation that records sessions, over a fleet without workers."""

    def __init__(self) -> None:
        self.fleet = FakeFleet()
        indexes = SessionIndexes(60.0)
        self.store = MemoryTrajectoryStore(2**20, 60.0, indexes.forget)
        self.recorder = TrajectoryRecorder(self.store, indexes, clock=lambda: 1000.0)
        self.generation = GenerationService(self.fleet, token_history(), recorder=self.recorder)

    async def start(
        self, *prompts: Prompt, session: str | None = "s", sampling: pb.SamplingParams | None = None, **fields: Any
    ) -> GenerationHandle:
        """Start a request."""
        sampling = sampling or pb.SamplingParams()
        request = GenerationRequest("r", "digits", prompts, sampling, conversation_id=session, **fields)
        prepared = await self.generation.prepare(request, served_model(max_model_len=200), CALLER)
        context = request_context(RequestRecord(), CALLER)
        return await self.generation.start(prepared, CollectedReply(prepared.choices), context)

    def sample(self, text: str, finish: pb.Finish | None = None, part: int = -1, place: int = 0) -> None:
        """Let a worker sample the tokens of a text for one sequence of a submission, each with log-probability -1."""
        submission, listener = self.fleet.parts[part].submission, self.fleet.parts[part].listeners[place]
        run = submission.sampled[place].begin(len(submission.prompt_token_ids), by_rows=False)
        run.logprobs.extend([-1.0] * len(ids(text)))
        submission.sampled[place].token_ids.extend(ids(text))
        listener.step(list(ids(text)), finish)

    async def graph(self, key: SessionKey = KEY) -> SessionGraph:
        """Return the graph of a session."""
        return build_graph([event for each in await self.store.read(key) if (event := unpack_event(each))])


async def test_turns_of_many_prompts_are_stored_with_turns_for_others() -> None:
    """Whoever waits for them, or closes the recorder, gets all of them."""
    service, count = RecordedService(), 40
    handle = await service.start(*(TokenPrompt([number % 9 + 1]) for number in range(count)))
    for part in range(count):
        service.sample("two", LENGTH, part=part)

    handle.settle(0)
    handle.settle(0)

    assert not (await service.graph()).nodes
    await service.recorder.settled(KEY)
    assert len((await service.graph()).nodes) == count
    handle = await service.start(*(TokenPrompt([3, 4]) for _ in range(count)))
    for part in range(count):
        service.sample("two", LENGTH, part=count + part)
    handle.settle(0)
    await service.recorder.close()
    assert len((await service.graph()).nodes) == 2 * count


@pytest.mark.parametrize(("prompts", "names"), [(1, {"temperature", "extra_args_json"}), (2, {"temperature"})])
async def test_each_prompt_of_a_request_repeats_only_small_parameters(prompts: int, names: set[str]) -> None:
    """Numbers are kept of large ones."""
    service = RecordedService()
    sampling = pb.SamplingParams(temperature=0.5, extra_args_json=f'{{"a": "{"x" * 40_000}"}}')
    handle = await service.start(*(TokenPrompt([1, 2]) for _ in range(prompts)), sampling=sampling)
    for part in range(prompts):
        service.sample("two", LENGTH, part=part)

    handle.settle(0)

    for node in (await service.graph()).nodes.values():
        assert node.turn.sampling.keys() & {"temperature", "extra_args_json"} == names
        assert node.turn.sampling["temperature"] == 0.5


async def test_a_turn_is_stored_when_it_ends() -> None:
    """With ids, log-probabilities, the message, and how it was sampled."""
    service = RecordedService()
    prompt = ChatPrompt([{"role": "user", "content": "one two"}], history=ExactHistory(conversation_id="s"))
    handle = await service.start(prompt)
    service.sample("three four", LENGTH)
    assert not (await service.graph()).nodes
    handle.settle(0)
    handle.settle(0)

    (node,) = (await service.graph()).nodes.values()
    assert (list(node.prompt_ids), list(node.choice.token_ids)) == ([1, 2], [3, 4])
    assert list(node.choice.logprobs or ()) == [-1.0, -1.0]
    assert (node.choice.finish, node.message) == ("length", {"role": "assistant", "content": " three four"})
    assert (node.turn.request_id, node.turn.model, node.turn.ended) == ("r", "digits", 1000.0)
    assert node.turn.sampling["temperature"] == 1.0


async def test_the_next_turn_is_stored_as_what_it_adds() -> None:
    """Its ids, its messages and its tools."""
    service = RecordedService()
    tools = [{"type": "function"}]
    messages = [{"role": "user", "content": "one"}]
    for text in ("two", "four"):
        options = TemplateOptions(tools=tools)
        prompt = ChatPrompt([*messages], options, history=ExactHistory(conversation_id="s"))
        handle = await service.start(prompt)
        service.sample(text, LENGTH)
        handle.settle(0)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "three"}]

    second = unpack_event((await service.store.read(KEY))[1])
    assert second is not None
    first, last = (await service.graph()).nodes.values()
    assert last.parent is first
    assert list(last.prompt_ids) == [3]
    assert last.conversation is not None
    assert last.conversation.after(0) == messages[:3]
    assert last.tools == tools
    assert (second.message_start, second.same_tools, second.tools) == (1, True, None)  # type: ignore[union-attr]


async def test_a_client_that_leaves_has_what_was_sampled_until_then() -> None:
    """Tokens that it was not sent are not recorded, and choices without any are none."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]), n=2)
    service.sample("two three")
    service.fleet.parts[0].submission.sampled[0].token_ids.append(9)
    handle.settle(0)

    (node,) = (await service.graph()).nodes.values()
    assert (list(node.choice.token_ids), node.choice.finish, node.choice.index) == ([2, 3], "abort", 0)
    assert node.message == {"role": "assistant", "content": "two three"}


async def test_a_stop_string_ends_what_is_recorded() -> None:
    """Where it ends what the client gets."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]), text=TextRules(stop=("three",)))
    service.sample("two three four five")
    handle.settle(0)

    (node,) = (await service.graph()).nodes.values()
    assert (list(node.choice.token_ids), node.choice.stop_reason) == ([2, 3], "three")


async def test_a_reply_that_fails_says_so() -> None:
    """What was sampled before is there."""
    service = RecordedService()
    request = GenerationRequest("r", "digits", [TokenPrompt([1])], pb.SamplingParams(), conversation_id="s")
    prepared = await service.generation.prepare(request, served_model(), CALLER)
    record = RequestRecord()
    handle = await service.generation.start(prepared, CollectedReply(1), request_context(record, CALLER))
    service.sample("two")
    record.error = EngineFailed("broken")
    handle.settle(0)

    (node,) = (await service.graph()).nodes.values()
    assert (list(node.choice.token_ids), node.choice.finish) == ([2], "error")


async def test_each_prompt_of_a_request_is_a_turn() -> None:
    """With the choices of its own."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]), TokenPrompt([2]), n=2)
    for part in range(2):
        for place in range(2):
            service.sample("three", LENGTH, part, place)
    handle.settle(0)

    nodes = (await service.graph()).nodes.values()
    assert [(list(node.prompt_ids), node.choice.index) for node in nodes] == [([1], 0), ([1], 1), ([2], 2), ([2], 3)]


async def test_a_message_that_is_parsed_later_is_added() -> None:
    """A complete reply is parsed once it has ended."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]), plan=ScriptedPlan([]))
    service.sample("two", LENGTH)
    handle.settle(0)
    (node,) = (await service.graph()).nodes.values()
    assert node.message is None
    assert handle.recording is not None
    parsed: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    handle.recording.on_message(0, [parsed])
    handle.recording.on_message(0, [{"role": "assistant", "content": "again"}])

    assert (await service.graph()).nodes[node.id].message == parsed


async def test_a_message_is_recorded_whether_or_not_history_keeps_the_turn() -> None:
    """Of a prompt of ids it keeps none, nor of one that the template alone renders; without a session, nothing does."""
    service = RecordedService()
    for session in (None, "s"):
        request = GenerationRequest(
            "r", "digits", [TokenPrompt([1])], pb.SamplingParams(), conversation_id=session, plan=ScriptedPlan([])
        )
        prepared = await service.generation.prepare(request, served_model(), CALLER)
        assert (prepared.history_writer, prepared.keeps_messages) == (None, session is not None)
        handle = await service.generation.start(prepared, CollectedReply(1), request_context(RequestRecord(), CALLER))
    service.sample("two", LENGTH)
    handle.settle(0)
    prepared.keep(0, [{"role": "assistant", "content": "parsed"}])

    (node,) = (await service.graph()).nodes.values()
    assert node.message == {"role": "assistant", "content": "parsed"}


async def test_a_deleted_session_does_not_come_back_by_requests_that_began_before() -> None:
    """Neither by what they sample, nor by a message that is parsed later; those that begin later are recorded."""
    service = RecordedService()
    ended, running = [await service.start(TokenPrompt([1]), plan=ScriptedPlan([])) for _ in range(2)]
    other = await service.start(TokenPrompt([1]), session="other")
    service.sample("two", LENGTH, part=0)
    ended.settle(0)
    await service.recorder.delete(KEY)
    for part in (1, 2):
        service.sample("two", LENGTH, part=part)
    for handle in (running, other):
        handle.settle(0)
    assert ended.recording is not None
    ended.recording.on_message(0, [{"role": "assistant", "content": "late"}])

    assert await service.store.read(KEY) == []
    assert len((await service.graph(("acme", "other"))).nodes) == 1
    later = await service.start(TokenPrompt([1]))
    service.sample("two", LENGTH)
    later.settle(0)
    assert len((await service.graph()).nodes) == 1


async def test_only_requests_of_sessions_are_recorded() -> None:
    """And only for their tenant; others ask workers for no log-probabilities."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]), session=None)
    assert handle.recording is None
    assert not service.fleet.parts[0].submission.sampled

    named = await service.start(TokenPrompt([1]))
    service.sample("two", LENGTH)
    named.settle(0)
    assert len((await service.graph()).nodes) == 1
    assert not (await service.graph(("", "s"))).nodes


async def test_a_request_that_samples_nothing_leaves_nothing() -> None:
    """Such as one that was rejected."""
    service = RecordedService()
    handle = await service.start(TokenPrompt([1]))
    handle.settle(0)

    assert len(service.store) == 0


async def test_readers_wait_for_a_reply_that_has_ended() -> None:
    """Its client may ask before it is stored."""
    service = RecordedService()
    running = await service.start(TokenPrompt([5]))
    handle = await service.start(TokenPrompt([1]))
    service.sample("two", LENGTH)
    reading = asyncio.create_task(service.recorder.settled(KEY))
    await asyncio.sleep(0)
    assert not reading.done()

    handle.settle(0)
    await asyncio.wait_for(reading, math.inf)
    assert len((await service.graph()).nodes) == 1
    running.settle(0)
