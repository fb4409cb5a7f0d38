"""The configured store, and what a process's own adds to a shared one."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.coordinator.response_store.responses import response_of
from tokenwire.coordinator.response_store.open_store import SharedResponseStore, open_response_store
from tokenwire.coordinator.response_store.redis_store import Deleted
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore, ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import Unavailable

KEY = ("acme", "resp_1")


class FakeRedis:
    """Answers with a row of values; an error is raised."""

    def __init__(self, *answers: StoredResponse | type[Deleted] | Exception | None) -> None:
        self.answers = list(answers)

    async def find(self, keys: Sequence[ResponseKey]) -> list[Any]:
        """Return the next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    def put(self, response: StoredResponse) -> None:
        """Lose it."""

    async def renew(self, keys: Sequence[ResponseKey]) -> Sequence[ResponseKey]:
        """Fail."""
        raise Unavailable("gone")


def in_front_of(*answers: StoredResponse | type[Deleted] | Exception | None) -> SharedResponseStore:
    """Return a store in front of those answers."""
    return SharedResponseStore(MemoryResponseStore(2**20, 60.0), cast("Any", FakeRedis(*answers)))


def test_without_the_option_there_is_no_store() -> None:
    """With it, one in memory, unless a Redis is configured."""
    assert open_response_store(ResponseStoreSettings()) is None
    assert isinstance(open_response_store(ResponseStoreSettings(enabled=True)), MemoryResponseStore)


async def test_a_response_that_comes_late_is_found() -> None:
    """A client may continue it before another process has written it."""
    store = in_front_of(None, response_of("resp_1"))

    assert await store.find([KEY]) == [response_of("resp_1")]


async def test_its_own_response_is_found_if_the_shared_store_has_lost_it() -> None:
    """Or does not answer; but not if it was deleted elsewhere."""
    store = in_front_of(None, Unavailable("gone"), Deleted, Deleted)
    store.put(response_of("resp_1"))

    assert await store.find([KEY]) == [response_of("resp_1")]
    assert await store.find([KEY]) == [response_of("resp_1")]
    assert await store.find([KEY]) == [None]


async def test_what_has_ended_here_is_not_running() -> None:
    """Though the shared store says so, until the end is written."""
    store = in_front_of(response_of("resp_1", status="in_progress"))
    store.put(response_of("resp_1"))

    assert await store.find([KEY]) == [response_of("resp_1")]


async def test_a_store_that_does_not_answer_is_no_reason_to_say_there_is_none() -> None:
    """Nor to stop what runs."""
    store = in_front_of(Unavailable("gone"))

    with pytest.raises(Unavailable):
        await store.find([KEY])
    assert not await store.renew([KEY])
