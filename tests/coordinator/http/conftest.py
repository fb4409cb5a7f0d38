"""The event loop of the tests of HTTP connections, and certificates of servers."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.certificates import Authority, CertificateFiles
from tokenwire.coordinator.http.tls import HttpsSettings, https_context


@pytest.fixture(scope="module")
def event_loop_policy() -> Any:
    """Use the coordinator's event loop, because transports differ."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> CertificateFiles:
    """A server's certificate."""
    return authority.issue(tmp_path, "server", names=["127.0.0.1"])


@pytest.fixture
def https(pair: CertificateFiles) -> ssl.SSLContext:
    """The files that the server uses."""
    context = https_context(HttpsSettings(pair.cert, pair.key))
    assert context is not None
    return context
