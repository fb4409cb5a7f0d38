"""Expected models: requests for one wait for its first worker, within limits."""

import asyncio

import pytest

from tokenwire.coordinator.fleet.admission.expected_models import ExpectedModels
from tokenwire.coordinator.fleet.admission.settings import LEAST_QUEUE, AdmissionSettings
from tokenwire.errors import Unavailable


async def waiting(expected: ExpectedModels, name: str, count: int) -> list[asyncio.Task[None]]:
    """Start a number of waits."""
    tasks = [asyncio.create_task(expected.wait(name)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_requests_wait_until_the_model_is_available() -> None:
    """They are counted while they wait, released when any of its names is announced, and held again once it is gone."""
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


async def test_unexpected_models_are_not_waited_for() -> None:
    """The model directory handles them."""
    await ExpectedModels(["red"]).wait("blue")


@pytest.mark.parametrize(("max_queue", "entries"), [(None, LEAST_QUEUE), (2, 2), (0, 0)])
async def test_the_number_of_held_requests_is_limited(max_queue: int | None, entries: int) -> None:
    """One more is rejected at once, with Retry-After; other models are counted separately."""
    expected = ExpectedModels(["red", "blue"], AdmissionSettings(max_queue=max_queue))
    tasks = await waiting(expected, "red", entries)

    with pytest.raises(
        Unavailable, match=rf"No worker of red .* yet, and {entries} of at most {entries} .*--max-queue"
    ) as rejected:
        await expected.wait("red")

    assert rejected.value.retry_after_s
    assert expected.rejections == {("red", "no_worker"): 1}
    assert expected.waiting["red"] == entries
    for task in tasks:
        task.cancel()


async def test_holding_times_out() -> None:
    """After --queue-timeout."""
    expected = ExpectedModels(["red"], AdmissionSettings(queue_timeout_s=0.01))

    with pytest.raises(Unavailable, match=r"No worker of red has connected within 0\.01 s \(--queue-timeout\)"):
        await expected.wait("red")

    assert expected.rejections == {("red", "timeout"): 1}
    assert expected.waiting["red"] == 0
