"""Weight updates of older TRL."""

import asyncio
from pathlib import Path

import pytest

from tests.coordinator.api.applications import served
from tokenwire.coordinator.api.admin.trl_weights import Broadcasts


async def test_broadcasts_run_one_at_a_time_and_in_order() -> None:
    """The next one starts when the one before has ended."""
    broadcasts, events, gate = Broadcasts(), list[str](), asyncio.Event()
    ended = asyncio.Event()

    async def first() -> None:
        events.append("first begins")
        await gate.wait()
        events.append("first ends")

    async def second() -> None:
        events.append("second")
        ended.set()

    broadcasts.begin(first)
    broadcasts.begin(second)
    await asyncio.sleep(0)
    gate.set()
    await ended.wait()

    assert events == ["first begins", "first ends", "second"]


async def test_the_error_of_a_broadcast_is_raised_by_the_next() -> None:
    """Its own client has had its response; the call after that starts again."""
    broadcasts, failed, ran = Broadcasts(), asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise ValueError("broken")

    async def succeed() -> None:
        ran.set()

    broadcasts.begin(fail)
    await failed.wait()
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="broken"):
        broadcasts.begin(succeed)
    assert not ran.is_set()

    broadcasts.begin(succeed)
    await ran.wait()


async def test_a_communicator_needs_gpus(tmp_path: Path) -> None:
    """The error names another way; one that was never opened can be closed."""
    async with served(tmp_path) as client:
        opened = await client.post("/init_communicator/", json={"host": "127.0.0.1", "port": 1})
        updated = await client.post("/update_named_param/", json={"name": "a", "dtype": "float32", "shape": [1]})
        closed = await client.post("/close_communicator/", json={})

    assert [opened.status_code, updated.status_code, closed.status_code] == [501, 501, 200]
    assert "weight_dir" in opened.json()["error"]["message"]
