"""Options of the store of responses."""

import pytest

from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "enabled", "named"),
    [("redis://host:1", False, "--enable-responses-store"), ("http://host:1", True, "--responses-store must")],
)
def test_a_shared_store_must_be_redis_and_in_use(url: str, enabled: bool, named: str) -> None:
    """The error names the option."""
    with pytest.raises(InvalidRequest, match=named):
        ResponseStoreSettings(enabled=enabled, store_url=url)
