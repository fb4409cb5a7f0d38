"""Tests of the metrics of pictures."""

from tests.coordinator.media import pictures
from tests.coordinator.media.test_loader import data_url
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.media.store import PICTURE_BYTES
from tokenwire.coordinator.observability.metrics.media import MediaCollector


async def test_loads_are_counted_by_source_and_outcome() -> None:
    """With the memory that pictures take now."""
    loader = MediaLoader(MediaSettings())
    held = await loader.load([MediaReference(data_url(pictures.png()))], "")
    families = {family.name: family.samples for family in MediaCollector(loader).collect()}
    assert [(s.labels, s.value) for s in families["tokenwire_media_loads"]] == [
        ({"source": "data", "outcome": "ok"}, 1)
    ]
    assert families["tokenwire_media_memory_bytes"][0].value == len(held[0].data) + PICTURE_BYTES
    assert families["tokenwire_media_fetched_bytes"][0].value == 0
