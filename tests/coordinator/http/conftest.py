"""The event loop of the tests of HTTP connections."""

from typing import Any

import pytest
import uvloop


@pytest.fixture(scope="module")
def event_loop_policy() -> Any:
    """Use the coordinator's event loop, because transports differ."""
    return uvloop.EventLoopPolicy()
