"""A worker's settings are checked when they are created."""

from pathlib import Path

import pytest

from tokenwire.cli.click_options import build
from tokenwire.errors import InvalidRequest
from tokenwire.options import declared
from tokenwire.worker.settings import WorkerSettings


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::]:50051", "worker:65535", "unix:/run/worker.sock"])
def test_addresses_are_hosts_with_ports_or_sockets(address: str) -> None:
    """For coordinators, for probes and for Prometheus alike."""
    settings = WorkerSettings(address, health_listen=address, metrics_listen=address)
    assert (settings.listen, settings.health_listen, settings.metrics_listen) == (address, address, address)


@pytest.mark.parametrize("address", ["", "worker", "worker:", "worker:port", "worker:65536", "worker:-1"])
@pytest.mark.parametrize("flag", ["--listen", "--health-listen", "--metrics-listen"])
def test_other_addresses_are_rejected_by_flag(flag: str, address: str) -> None:
    """With what was given."""
    with pytest.raises(InvalidRequest, match=f"{flag} must be HOST:PORT or unix:PATH, got {address!r}"):
        WorkerSettings(**{"listen": "127.0.0.1:0", flag.strip("-").replace("-", "_"): address})  # type: ignore[arg-type]


def test_roots_of_weights_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link leads to where it points, and a relative one to where the worker was started."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "weights")
    monkeypatch.chdir(tmp_path)

    settings = build(WorkerSettings, {"--weights-root": (Path("weights"), tmp_path / "link")})

    assert settings.weights_roots == ((tmp_path / "weights").resolve(),) * 2


@pytest.mark.parametrize(
    "name", [name for name, each in declared(WorkerSettings).items() if each.option.bounds is not None]
)
def test_numbers_out_of_bounds_are_rejected_by_flag(name: str) -> None:
    """Each part of the settings checks its own."""
    with pytest.raises(InvalidRequest, match=f"{name} must be "):
        build(WorkerSettings, {name: -(10**6)})
