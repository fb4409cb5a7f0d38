"""vLLM's routes that pause, resume, sleep and wake up."""

from pathlib import Path

from tests.coordinator.api.applications import served


async def test_a_pause_holds_until_the_resume(tmp_path: Path) -> None:
    """A paused engine counts as asleep, as in vLLM."""
    async with served(tmp_path) as client:
        paused = await client.post("/pause", json={"mode": "keep"})
        states = [(await client.get(path)).json() for path in ("/is_paused", "/is_sleeping")]
        resumed = await client.post("/resume")
        after = [(await client.get(path)).json() for path in ("/is_paused", "/is_sleeping")]

    assert (paused.json(), resumed.json()) == ({"status": "paused"}, {"status": "resumed"})
    assert states == [{"is_paused": True}, {"is_sleeping": True}]
    assert after == [{"is_paused": False}, {"is_sleeping": False}]


async def test_an_engine_is_awake_when_everything_is(tmp_path: Path) -> None:
    """Tags wake parts of it."""
    async with served(tmp_path) as client:
        asleep = await client.post("/sleep?level=2")
        partly = await client.post("/wake_up", json={"tags": ["weights"]})
        awake = await client.post("/wake_up")

    assert asleep.json() == {"status": "sleeping", "level": 2}
    assert partly.json() == {"status": "sleeping", "tags": ["weights"]}
    assert awake.json() == {"status": "awake", "tags": None}


async def test_levels_and_modes_are_checked(tmp_path: Path) -> None:
    """The error names the field."""
    async with served(tmp_path) as client:
        rejected = [await client.post(path) for path in ("/sleep?level=3", "/sleep?mode=soon", "/pause?mode=soon")]

    assert [answer.status_code for answer in rejected] == [400] * 3
    assert ["level" in rejected[0].text, "mode" in rejected[1].text, "mode" in rejected[2].text] == [True] * 3
