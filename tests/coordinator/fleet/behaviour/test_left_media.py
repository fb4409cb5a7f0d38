"""What is left of the pictures of clients that leave."""

import asyncio
import weakref
from pathlib import Path

import pytest

from tests.coordinator.fleet.behaviour.cluster import Cluster
from tests.coordinator.fleet.behaviour.test_media import IMAGE_TOKENS, expanded, received_by
from tests.workers import until
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.process.gc_tuning import gc_disabled


@pytest.mark.parametrize("is_put", [False, True], ids=["put", "processed"])
async def test_nothing_has_the_picture_of_a_client_that_has_left(tmp_path: Path, is_put: bool) -> None:
    """While it was put or processed: its memory is counted until then, and a collection of garbage may be far off."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", image_tokens=IMAGE_TOKENS, image_ms=200.0)
    received = received_by(cluster, "one")
    media = next(each.media for each in cluster.pool.sessions if each.state is SessionState.READY)
    picture = MediaContent(bytes(20 * 2**20))
    left = weakref.ref(picture)
    with gc_disabled():
        expanding = asyncio.create_task(expanded(cluster, picture))
        del picture
        await until(lambda: received.puts == is_put and received.used_bytes > 0 and media.open_calls > 0)
        expanding.cancel()
        await asyncio.wait([expanding])
        del expanding
        await until(lambda: media.open_calls == 0)
        assert left() is None
    await cluster.stop()
