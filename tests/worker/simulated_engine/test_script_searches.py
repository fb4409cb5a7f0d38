"""A request waits for its scripts, and not once all of its sequences are aborted."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.worker.simulated_engine.test_scripts import PLANNER, SEQUENCES, asked
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.script_searches import ScriptSearches
from tokenwire.worker.simulated_engine.scripts import Scripts
from tokenwire.worker.simulated_engine.tokens import Script

SCRIPTS = [Script((1,)), Script((2,))]


class SlowScripts(Scripts):
    """Finds scripts once it may, unless a request is invalid, as one with a seed."""

    def __init__(self) -> None:
        super().__init__(PLANNER, None, None)
        self.may_end = asyncio.Event()
        self.found = 0

    async def find(self, submit: pb.Submit, sequences: Sequence[EngineSequence], weights: str) -> list[Script]:
        await self.may_end.wait()
        self.found += 1
        if submit.sampling_params.seed:
            raise InvalidRequest("invalid")
        return SCRIPTS


async def test_one_sequence_that_is_aborted_leaves_the_others() -> None:
    """They get their scripts, and it is named."""
    slow = SlowScripts()
    searches = ScriptSearches(slow)
    finding = asyncio.create_task(searches.find(asked(), SEQUENCES, ""))
    await asyncio.sleep(0)
    assert searches.open == SEQUENCES
    searches.abort(SEQUENCES[:1])
    searches.abort(SEQUENCES[:1])
    slow.may_end.set()

    assert await finding == (SCRIPTS, SEQUENCES[:1])
    assert searches.open == []


@pytest.mark.parametrize("seed", [0, 1])
async def test_a_request_that_is_aborted_waits_no_longer(seed: int) -> None:
    """The search goes on, as what it has begun is shared, whatever comes of it."""
    slow = SlowScripts()
    searches = ScriptSearches(slow)
    finding = asyncio.create_task(searches.find(asked(seed=seed), SEQUENCES, ""))
    await asyncio.sleep(0)
    searches.abort(SEQUENCES)

    assert await finding == ([], SEQUENCES)
    assert searches.open == []
    slow.may_end.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slow.found == 1
    await searches.close()


async def test_what_a_search_raises_reaches_its_request() -> None:
    """As without others."""
    slow = SlowScripts()
    slow.may_end.set()

    with pytest.raises(InvalidRequest):
        await ScriptSearches(slow).find(asked(seed=1), SEQUENCES, "")
