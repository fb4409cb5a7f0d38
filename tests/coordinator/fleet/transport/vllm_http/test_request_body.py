"""Requests for the sequences of a submit share what they have in common."""

import asyncio
import json
from typing import Any

import pytest

from tests.turns import TurnsOfOthers
from tokenwire.coordinator.fleet.transport.vllm_http.request import body_of
from tokenwire.coordinator.fleet.transport.vllm_http.request_body import SharedBody
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def submit_of_ids(count: int, **sampling: Any) -> pb.Submit:
    """Return a request with a prompt of so many ids."""
    return pb.Submit(prompt_token_ids=range(count), sampling_params=pb.SamplingParams(**sampling))


async def body_as_sent(body: SharedBody, request_id: str, index: int) -> Any:
    """Return a request as its server reads it."""
    return json.loads(b"".join([*await body.of(request_id, index), b"}"]))


@pytest.mark.parametrize("count", [0, 1, 8192, 20_000])
async def test_a_request_has_its_id_and_seed_and_all_else_of_the_submit(count: int) -> None:
    """With prompts that are written in several parts, too."""
    submit = submit_of_ids(count, seed=40, temperature=0.5)
    submit.cache_salt = 'a "salt"'
    body = SharedBody(submit, "m")

    for index, request_id in enumerate(['r"1', "r2"]):
        found = await body_as_sent(body, request_id, index)

        assert found.pop("request_id") == request_id
        assert found.pop("token_ids") == list(range(count))
        assert found["sampling_params"].pop("seed") == 40 + index
        assert found == body_of(submit, "m")


async def test_without_a_seed_there_is_none() -> None:
    """The server draws one."""
    found = await body_as_sent(SharedBody(submit_of_ids(2), "m"), "r", 1)

    assert found["sampling_params"] == {"n": 1, "detokenize": False}


async def test_a_prompt_is_written_once_for_all_sequences() -> None:
    """Also for those that begin while it is written; and others have turns meanwhile."""
    body, turns = SharedBody(submit_of_ids(50_000), "m"), TurnsOfOthers()

    first, second = await asyncio.gather(body.of("a", 0), body.of("b", 1))

    assert turns.count > 5
    assert first[0] != second[0]
    assert [*map(id, first[1:])] == [*map(id, second[1:])]


async def test_a_sequence_that_is_aborted_meanwhile_leaves_the_prompt_to_the_next() -> None:
    """Which writes it from the beginning."""
    body = SharedBody(submit_of_ids(50_000), "m")
    first = asyncio.create_task(body.of("a", 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()

    assert (await body_as_sent(body, "b", 1))["token_ids"] == list(range(50_000))
    assert first.cancelled()


async def test_what_the_server_does_not_support_is_refused_for_each() -> None:
    """By name."""
    body = SharedBody(submit_of_ids(1, prompt_logprob_start=3), "m")
    for index in range(2):
        with pytest.raises(InvalidRequest, match="prompt_logprob_start"):
            await body.of("r", index)
