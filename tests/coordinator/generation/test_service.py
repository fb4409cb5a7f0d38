"""Generation: defaults, prompts and submits, without any worker.

One file, since all tests are of one service over one fake fleet.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.clock import Clock
from tests.coordinator.api.replies import ScriptedPlan
from tests.coordinator.fakes import ids, request_context, served_model, token_history
from tests.coordinator.generation.fakes import FakeFleet
from tests.turns import TurnsOfOthers
from tests.workers import accept
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.media.content import MediaPrompt
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.text.stops import StopAutomaton
from tokenwire.coordinator.types import ChatPrompt, GenerationRequest, Prompt, TextPrompt, TokenPrompt
from tokenwire.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unavailable
from tokenwire.v1 import inference_pb2 as pb


def request_for(*prompts: Prompt, n: int = 1, stop: tuple[str, ...] = (), **sampling: Any) -> GenerationRequest:
    """Return a request for the digits."""
    return GenerationRequest("r", "digits", prompts, pb.SamplingParams(**sampling), n=n, text=TextRules(stop=stop))


async def test_prompts_of_every_kind_become_ids() -> None:
    """Messages go through the template, text through the tokenizer, ids are unchanged."""
    generation = GenerationService(FakeFleet(), token_history())
    chat = ChatPrompt([{"role": "user", "content": "one two"}])

    prepared = await generation.prepare(request_for(chat, TextPrompt("three"), TokenPrompt([4])), served_model())

    assert [list(prompt.token_ids) for prompt in prepared.prompts] == [[1, 2], [3], [4]]
    assert (prepared.choices, prepared.prompt_tokens) == (3, 4)


async def test_defaults_come_from_the_generation_config_then_from_vllm() -> None:
    """The request overrides the model's config, which overrides the built-in defaults; stop ids are merged."""
    fleet = FakeFleet()
    model = served_model(defaults={"temperature": 0.6, "top_p": 0.9, "stop_token_ids": [7]})
    generation = GenerationService(fleet, token_history())

    prepared = await generation.prepare(request_for(TokenPrompt([1]), top_p=0.5, stop_token_ids=[8]), model)
    await generation.start(prepared, CollectedReply(1), request_context())

    sampling = fleet.parts[0].submission.sampling_params
    assert (sampling.temperature, sampling.top_p, sampling.repetition_penalty) == (0.6, 0.5, 1.0)
    assert (list(sampling.stop_token_ids), fleet.parts[0].submission.max_tokens) == ([8, 7], 19)


async def test_a_submitted_request_is_recorded() -> None:
    """Its id, model and sizes, and its prompt if a listener needs it."""
    record, generation = RequestRecord(keeps_prompt=True), GenerationService(FakeFleet(), token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1, 2])), served_model())
    await generation.start(prepared, CollectedReply(1), request_context(record))
    assert (record.request_id, record.model, record.prompt) == (prepared.request.request_id, "digits", "one two")
    assert (record.choices, record.prompt_tokens, record.submitted_at is None) == (1, 2, False)


async def test_preparing_a_request_does_not_change_it() -> None:
    """The model's defaults and the prompt's state of reasoning are in the prepared request alone."""

    class Plan(ScriptedPlan):
        def reasoning_ended(self, prompt_token_ids: Sequence[int]) -> bool | None:
            return True

    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    given = replace(request_for(TokenPrompt([1]), top_k=5), plan=Plan([]))

    prepared = await generation.prepare(given, served_model(defaults={"stop_token_ids": [7]}))
    await generation.start(prepared, CollectedReply(1), request_context())

    assert given == replace(request_for(TokenPrompt([1]), top_k=5), plan=given.plan)
    submission = fleet.parts[0].submission
    assert (list(submission.sampling_params.stop_token_ids), submission.reasoning_ended) == ([7], True)
    assert submission.sampling_params is prepared.sampling


async def test_choices_share_the_automaton_of_their_stop_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each would be a gigabyte for two hundred choices with long stop strings."""
    built: list[StopAutomaton] = []

    class Counted(StopAutomaton):
        def __init__(self, stops: tuple[str, ...]) -> None:
            super().__init__(stops)
            built.append(self)

    monkeypatch.setattr("tokenwire.coordinator.text.stops.StopAutomaton", Counted)
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    wanted = request_for(TokenPrompt([1]), TokenPrompt([2]), n=10, stop=("long" * 1000, "three"))

    await generation.start(await generation.prepare(wanted, served_model()), CollectedReply(20), request_context())

    listeners = [listener for part in fleet.parts for listener in part.listeners]
    assert [listener.step(list(ids("two three")), None) for listener in listeners] == [True] * 20
    assert len(built) == 1


async def test_stop_strings_are_not_sent_to_workers() -> None:
    """The protocol has no field for them; the choice searches for them."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    reply = CollectedReply(1)
    prepared = await generation.prepare(request_for(TokenPrompt([1]), stop=("three",)), served_model())
    await generation.start(prepared, reply, request_context())

    stopped = [fleet.parts[0].listeners[0].step([token_id], None) for token_id in ids("two three")]

    (choice,) = await reply.wait()
    assert stopped == [False, True]
    assert choice.finish.stop_reason == "three"
    assert choice.token_ids == [2, 3]


async def test_choices_are_numbered_over_prompts_and_n() -> None:
    """Choice i of prompt p has index p * n + i."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    reply = CollectedReply(4)
    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2]), n=2), served_model())
    await generation.start(prepared, reply, request_context())

    tokens = iter(range(4))
    for part in fleet.parts:
        for listener in part.listeners:
            listener.step([next(tokens)], pb.Finish(reason=pb.FINISH_REASON_LENGTH))

    assert [choice.token_ids for choice in await reply.wait()] == [[0], [1], [2], [3]]
    assert [part.submission.request_id for part in fleet.parts] == ["r-0", "r-1"]


async def test_a_part_without_a_worker_aborts_the_others() -> None:
    """All prompts run or none."""
    fleet = FakeFleet(capacity=1)
    generation = GenerationService(fleet, token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2])), served_model())

    with pytest.raises(Unavailable):
        await generation.start(prepared, CollectedReply(2), request_context())

    assert fleet.parts[0].aborted


async def test_an_invalid_prompt_is_found_before_any_is_submitted() -> None:
    """One invalid prompt of many costs the workers nothing."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())

    with pytest.raises(InvalidRequest, match="out of vocabulary"):
        await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([99])), served_model())

    assert fleet.parts == []


async def test_of_two_errors_the_one_that_vllm_finds_first_is_raised() -> None:
    """A minimum above the maximum before out-of-vocabulary ids, and after a prompt that is too long."""
    generation = GenerationService(FakeFleet(), token_history())

    for prompt, param in ((TokenPrompt([49152]), "min_tokens"), (TokenPrompt([0] * 5000), "input_tokens")):
        with pytest.raises(InvalidRequest) as caught:
            await generation.prepare(request_for(prompt, min_tokens=3, max_tokens=1), served_model())
        assert caught.value.param == param


async def test_log_probabilities_of_all_prompts_count_together() -> None:
    """The error says what was asked, what is allowed, and which option allows more."""
    generation = GenerationService(FakeFleet(), token_history(), ApiSettings(max_request_bytes=90_000))
    prompts, model = [TokenPrompt([1, 2] * 50)] * 2, served_model(200)
    await generation.prepare(request_for(*prompts, prompt_logprobs=0, max_tokens=1), model)

    with pytest.raises(InvalidRequest) as caught:
        await generation.prepare(request_for(*prompts, prompt_logprobs=1, max_tokens=1), model)
    assert caught.value.param == "prompt_logprobs"
    assert "more than 0.08583 MiB (--max-request-mb): " in caught.value.message


async def test_aborting_a_request_aborts_its_parts() -> None:
    """All submissions are aborted together."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2])), served_model())
    (await generation.start(prepared, CollectedReply(2), request_context())).abort()

    assert [part.aborted for part in fleet.parts] == [True, True]


async def test_what_a_request_takes_is_passed_to_the_fleet() -> None:
    """Divided by its choices, so that the queue counts those that wait in it."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())

    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2] * 100), n=2), served_model(200))
    await generation.start(prepared, CollectedReply(4), request_context())

    (size,) = {part.placement.sequence_bytes for part in fleet.parts}
    assert size == math.ceil(prepared.size_bytes / 4)
    assert size > 40 * 101 / 4


async def test_a_reply_without_a_named_length_grows_until_its_request_is_full() -> None:
    """It begins with memory for a part of that, and takes more for its caller as it comes."""
    settings = ApiSettings(max_request_bytes=2 * 2**20)
    generation = GenerationService(FakeFleet(), token_history(), settings)

    prepared = await generation.prepare(request_for(TokenPrompt([1]), n=2), served_model(32_000))
    context = request_context(caller=Caller(share="search", weight=2))
    await generation.start(prepared, CollectedReply(2), context)

    (max_tokens,), claim = prepared.max_tokens, context.memory
    assert 4096 < max_tokens < 2**20 / 100
    assert claim is not None
    assert (claim.tenant, claim.weight, claim.size_bytes) == ("search", 2, prepared.size_bytes + 100 * 2 * 4096)
    assert claim.on_refused is not None


async def test_the_least_length_of_a_reply_has_to_fit_into_its_request() -> None:
    """Else the engine would get a maximum below it."""
    generation = GenerationService(FakeFleet(), token_history(), ApiSettings(max_request_bytes=2 * 2**20))

    with pytest.raises(InvalidRequest) as caught:
        await generation.prepare(request_for(TokenPrompt([1]), n=2, min_tokens=11_000), served_model(32_000))

    assert caught.value.param == "max_tokens"


async def test_the_caller_is_passed_to_the_fleet() -> None:
    """Its share and least priority apply to every prompt; later ones join the first."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    caller = Caller("tenant", weight=2, min_priority=3, share="search")

    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2])), served_model())
    await generation.start(prepared, CollectedReply(2), request_context(caller=caller))

    assert [(part.placement.tenant, part.placement.weight) for part in fleet.parts] == [("search", 2)] * 2
    assert [part.placement.joins for part in fleet.parts] == [False, True]
    assert [part.submission.priority for part in fleet.parts] == [3, 3]


async def test_workers_get_the_tenant_of_a_grammar_and_of_pictures() -> None:
    """Tenants share what compiles and processes them; workers need not know whose other requests are."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    context = request_context(caller=Caller("tenant", share="search"))

    for sampling in dict[str, Any](), {"structured_outputs": pb.StructuredOutputs(regex="a")}:
        prepared = await generation.prepare(request_for(TokenPrompt([1]), **sampling), served_model())
        await generation.start(prepared, CollectedReply(1), context)
    seen = replace(prepared.prompts[0], media=MediaPrompt([], [1], 1, []))
    prepared = await generation.prepare(request_for(TokenPrompt([1])), served_model())
    await generation.start(replace(prepared, prompts=[seen]), CollectedReply(1), context)

    assert [part.submission.tenant for part in fleet.parts] == ["", "search", "search"]


async def test_workers_are_recorded_and_get_the_trace() -> None:
    """A resumed request has several; a worker's spans are part of the client's trace."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    record = RequestRecord(trace_headers={"traceparent": "00-1-2-01"})
    prepared = await generation.prepare(request_for(TokenPrompt([1])), served_model())
    await generation.start(prepared, CollectedReply(1), request_context(record=record))

    (part,) = fleet.parts
    assert part.submission.trace_headers == {"traceparent": "00-1-2-01"}
    for address in ("a:1", "b:1", "a:1"):
        part.placement.on_placed(WorkerSession(address, "test", accept), part.submission, 1)
    assert record.workers == ["a:1", "b:1"]


async def test_each_prompt_has_its_own_maximum_of_tokens() -> None:
    """The context that is left after it, if the request has no smaller limit."""
    generation = GenerationService(FakeFleet(), token_history())

    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([1, 2])), served_model())

    assert [submit.sampling_params.max_tokens for submit in generation.submits(prepared, ANYBODY)] == [19, 18]


async def test_a_request_ends_at_its_deadline(time: Clock) -> None:
    """What it did before its submission counts: only the rest is left. What runs or is queued is aborted."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    reply, context = CollectedReply(1), request_context(clock=time)
    context.deadline = time.now + 60
    prepared = await generation.prepare(request_for(TokenPrompt([1])), served_model())

    time.now += 59.99
    await generation.start(prepared, reply, context)

    with pytest.raises(DeadlineExceeded, match="timed out after 60 s"):
        await asyncio.wait_for(reply.wait(), 10)
    assert fleet.parts[0].aborted


async def test_nothing_is_submitted_after_the_deadline(time: Clock) -> None:
    """A body that arrived slowly, or a prompt that took long to render, may have used all of the time."""
    fleet = FakeFleet()
    generation = GenerationService(fleet, token_history())
    context = request_context(clock=time)
    context.deadline = time.now + 60
    prepared = await generation.prepare(request_for(TokenPrompt([1])), served_model())

    time.now += 60
    with pytest.raises(DeadlineExceeded, match="timed out after 60 s"):
        await generation.start(prepared, CollectedReply(1), context)

    assert fleet.parts == []


async def test_a_request_that_would_be_rejected_is_not_prepared() -> None:
    """A full queue is found before the template is rendered."""

    class Full(FakeFleet):
        def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
            raise Overloaded(f"no capacity for {placement.tenant} {placement.weight} {model} {adapter_id}")

    generation = GenerationService(Full(), token_history())

    with pytest.raises(Overloaded, match="no capacity for search 2 digits 0"):
        await generation.prepare(request_for(TokenPrompt([99])), served_model(), Caller(share="search", weight=2))
    await generation.prepare(request_for(TokenPrompt([1])), served_model(), submits=False)


async def test_many_sequences_are_made_for_one_request_at_a_time() -> None:
    """Others have a turn between them; and only if they are taken: they are refused before they are made."""
    turns, begun = TurnsOfOthers(), list[int]()

    class Noting(FakeFleet):
        def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
            if sequences > 1:
                begun.append(turns.count)
                if len(begun) > 2:
                    raise Overloaded(f"no room for {sequences}")

    fleet = Noting()
    generation = GenerationService(fleet, token_history())
    prepared = [await generation.prepare(request_for(TokenPrompt([1]), n=1000), served_model()) for _ in range(4)]

    starting = (generation.start(each, CollectedReply(1000), request_context()) for each in prepared)
    results = await asyncio.gather(*starting, return_exceptions=True)

    assert len(set(begun)) == 4
    assert [str(each) for each in results[2:]] == ["no room for 1000"] * 2
    assert [len(part.listeners) for part in fleet.parts] == [1000, 1000]


async def test_a_thousand_prompts_do_not_block_the_event_loop() -> None:
    """Neither while they are prepared nor while they are submitted."""
    fleet = FakeFleet(capacity=1000)
    generation = GenerationService(fleet, token_history())
    turns, sent_before_turns = 0, []

    async def stream() -> None:
        nonlocal turns
        while True:
            turns += 1
            sent_before_turns.append(len(fleet.parts))
            await asyncio.sleep(0)

    streaming = asyncio.create_task(stream())
    prepared = await generation.prepare(request_for(*[TokenPrompt([1])] * 1000), served_model())
    turns_of_preparing = turns
    await generation.start(prepared, CollectedReply(1000), request_context())
    streaming.cancel()

    assert turns_of_preparing >= 10
    assert len(set(sent_before_turns)) >= 10
