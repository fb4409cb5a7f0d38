"""Pooling requests are cut into pieces, checked, counted and aborted, without any worker."""

from dataclasses import replace

import pytest

from tests.coordinator.fakes import request_context
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.pooling.embedding import PARAMS, embedding_model, pooling_request
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.auth.rate_limit import Account, Limits
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.pooling.reply import PooledReply
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.types import TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb


async def test_inputs_are_sent_packed() -> None:
    """With the request's parameters, and a listener for each."""
    fleet, model = FakeFleet(), embedding_model()
    service = PoolingService(fleet, ApiSettings())
    request = pooling_request(TextPrompt("one two"), TokenPrompt([3]), cache_salt="salt", priority=2)

    prepared = await service.prepare(request, model, ANYBODY)
    await service.start(prepared, PooledReply([2] * 2, "float32"), request_context())

    (part,) = fleet.parts
    assert part.submission.message([5, 6]).pool == pb.Pool(
        request_id="r",
        slots=[5, 6],
        lengths=[2, 1],
        token_ids=[1, 2, 3],
        params=PARAMS,
        cache_salt="salt",
        priority=2,
    )
    assert len(part.listeners) == 2
    assert (part.placement.revision, part.placement.begun) == (model.revision, True)


async def test_a_batch_is_cut_into_pieces() -> None:
    """Of so many tokens that workers can share it; all but the first may always join."""
    fleet = FakeFleet()
    service = PoolingService(fleet, ApiSettings())
    inputs = [TokenPrompt([1] * 20_000), TokenPrompt([2] * 20_000), TokenPrompt([3] * 100), TokenPrompt([4] * 40_000)]

    prepared = await service.prepare(pooling_request(*inputs), embedding_model(50_000), ANYBODY)
    await service.start(prepared, PooledReply([2] * 4, "float32"), request_context())

    sent = [part.submission.message(range(len(part.listeners))).pool for part in fleet.parts]
    assert [list(each.lengths) for each in sent] == [[20_000], [20_000, 100], [40_000]]
    assert [each.request_id for each in sent] == ["r-0", "r-1", "r-2"]
    assert [part.placement.joins for part in fleet.parts] == [False, True, True]


async def test_a_request_is_recorded() -> None:
    """With its inputs as choices, and the text of the first if a listener needs it."""
    record, service = RequestRecord(keeps_prompt=True), PoolingService(FakeFleet(), ApiSettings())

    for given in (TextPrompt("one two"), TokenPrompt([1, 2])):
        prepared = await service.prepare(pooling_request(given, TokenPrompt([3])), embedding_model(), ANYBODY)
        await service.start(prepared, PooledReply([2] * 2, "float32"), request_context(record))

        assert (record.request_id, record.model, record.choices, record.prompt_tokens) == ("r", "digits", 2, 3)
        assert record.prompt == "one two"


async def test_what_was_sent_is_aborted_if_the_rest_is_refused() -> None:
    """And its tokens are given back to the caller."""
    fleet = FakeFleet(capacity=1)
    service = PoolingService(fleet, ApiSettings())
    account = Account("tenant", Limits(tokens_per_minute=80_000))
    caller = Caller(tenant="tenant", account=account)
    inputs = [TokenPrompt([1] * 30_000), TokenPrompt([2] * 30_000)]
    prepared = await service.prepare(pooling_request(*inputs), embedding_model(50_000), caller)

    with pytest.raises(Unavailable):
        await service.start(prepared, PooledReply([2] * 2, "float32"), request_context(caller=caller))

    assert fleet.parts[0].aborted
    assert account.is_idle


async def test_a_request_has_no_more_tokens_than_its_callers_minute() -> None:
    """It would never be let in."""
    service = PoolingService(FakeFleet(), ApiSettings())
    caller = Caller(tenant="tenant", account=Account("tenant", Limits(tokens_per_minute=3)))
    prepared = await service.prepare(pooling_request(TokenPrompt([1] * 4)), embedding_model(), caller)

    with pytest.raises(InvalidRequest, match="3 tokens per minute"):
        await service.start(prepared, PooledReply([2] * 1, "float32"), request_context(caller=caller))


@pytest.mark.parametrize(
    ("task", "inputs", "bytes_per_number", "what"),
    [("embed", 100, 32, "their results"), ("token_embed", 3, 8_000, "their results"), ("embed", 3, 1, "tokens")],
)
async def test_the_memory_of_a_request_is_bounded(task: str, inputs: int, bytes_per_number: int, what: str) -> None:
    """With what its results will take."""
    service = PoolingService(FakeFleet(), ApiSettings(max_request_bytes=200_000))
    model = embedding_model(20_000, width=1_000 if bytes_per_number > 1 else 1)
    request = pooling_request(*[TokenPrompt([1] * (10 if bytes_per_number > 1 else 2_000))] * inputs)
    request = replace(request, params=pb.PoolingParams(task=task, dtype="float32"), bytes_per_number=bytes_per_number)

    with pytest.raises(InvalidRequest, match=what):
        await service.prepare(request, model, ANYBODY)


async def test_callers_priorities_are_bounded() -> None:
    """As for generation."""
    fleet = FakeFleet()
    service = PoolingService(fleet, ApiSettings())
    caller = Caller(min_priority=5)
    prepared = await service.prepare(pooling_request(TokenPrompt([1])), embedding_model(), caller)

    await service.start(prepared, PooledReply([2] * 1, "float32"), request_context(caller=caller))

    assert fleet.parts[0].submission.priority == 5
