"""Models that are expected: who asks for one before its first worker has come waits, within bounds."""

import asyncio

import pytest

from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings
from tokenwire.errors import Unavailable


async def waiting(expected: ExpectedModels, name: str, count: int) -> list[asyncio.Task[None]]:
    """Begin to wait so many times."""
    tasks = [asyncio.create_task(expected.wait(name)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_requests_wait_until_the_model_is_known() -> None:
    """They are counted while they wait, go on when any of its names is announced, and wait again once it is gone."""
    expected = ExpectedModels(["red", "blue"])
    tasks = await waiting(expected, "red", 3)
    assert (expected.waiting["red"], expected.unknown()) == (3, ["red", "blue"])

    expected.mark_available(["red", "crimson"])

    await asyncio.gather(*tasks)
    assert (expected.waiting["red"], expected.unknown()) == (0, ["blue"])
    await expected.wait("red")

    expected.mark_unavailable(["red", "crimson"])
    (again,) = await waiting(expected, "red", 1)
    assert expected.waiting["red"] == 1
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    assert expected.waiting["red"] == 0


async def test_models_that_nobody_expects_are_not_waited_for() -> None:
    """What becomes of them is the directory's business."""
    await ExpectedModels(["red"]).wait("blue")


@pytest.mark.parametrize(("max_queue", "entries"), [(None, LEAST_QUEUE), (2, 2), (0, 0)])
async def test_no_more_wait_than_may_stand_in_line(max_queue: int | None, entries: int) -> None:
    """One more is sent away at once, and told when to come back; other models have entries of their own."""
    expected = ExpectedModels(["red", "blue"], AdmissionSettings(max_queue=max_queue))
    tasks = await waiting(expected, "red", entries)

    with pytest.raises(Unavailable, match="No worker of red has connected yet") as refused:
        await expected.wait("red")

    assert refused.value.retry_after_s
    assert expected.rejections == {("red", "no_worker"): 1}
    assert expected.waiting["red"] == entries
    for task in tasks:
        task.cancel()


async def test_nobody_waits_for_ever() -> None:
    """After --queue-timeout it is over."""
    expected = ExpectedModels(["red"], AdmissionSettings(queue_timeout_s=0.01))

    with pytest.raises(Unavailable, match="No worker of red"):
        await expected.wait("red")

    assert expected.rejections == {("red", "timeout"): 1}
    assert expected.waiting["red"] == 0
