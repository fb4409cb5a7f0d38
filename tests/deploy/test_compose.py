"""The compose files are valid and match the commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

compose = pytest.importorskip("compose_spec.compose_spec", reason="needs the extra `deploy`")

FOLDER = Path(__file__).parents[2] / "deploy"


def on_cpu() -> Any:
    """Return the compose file."""
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def on_gpu() -> Any:
    """Return the compose file with the one for GPUs on top of it."""
    return _merged_files(on_cpu(), yaml.safe_load((FOLDER / "compose-gpu.yaml").read_text()), ())


def _merged_files(below: Any, above: Any, path: tuple[str, ...]) -> Any:
    """Merge as compose does: maps by key, lists by appending, but a command replaces the other."""
    if isinstance(below, dict) and isinstance(above, dict):
        merged = {key: _merged_files(below.get(key), value, (*path, key)) for key, value in above.items()}
        return {**below, **merged}
    if isinstance(below, list) and isinstance(above, list) and path[-1] != "command":
        return below + above
    return above


both = pytest.mark.parametrize("full", [on_cpu, on_gpu])


@both
def test_the_compose_file_is_valid(full: Callable[[], Any]) -> None:
    """It follows the specification, and all named networks and volumes exist."""
    content = full()
    compose.PyCompose.from_dict(content).validate()
    content["services"]["worker"]["networks"] = ["elsewhere"]
    with pytest.raises(ValueError, match="elsewhere"):
        compose.PyCompose.from_dict(content).validate()


@both
def test_services_are_locked_down(full: Callable[[], Any]) -> None:
    """No service can write to its root or gain privileges, and each has longer to stop than it drains."""
    for service in full()["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["stop_grace_period"].removesuffix("s")) > 30
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists()


@both
def test_only_the_coordinator_can_be_reached(full: Callable[[], Any]) -> None:
    """Their common network is internal, and only the coordinator's port is published, on loopback."""
    content = full()
    worker, coordinator = content["services"]["worker"], content["services"]["coordinator"]
    assert content["networks"]["peers"] == {"internal": True}
    assert set(worker["networks"]) & set(coordinator["networks"]) == {"peers"}
    assert "ports" not in worker
    assert all(port.startswith("127.0.0.1:") for port in coordinator["ports"])


def test_a_worker_on_a_cpu_reaches_nothing_else() -> None:
    """The embedded model needs no download."""
    assert on_cpu()["services"]["worker"]["networks"] == ["peers"]


def test_a_worker_on_gpus_has_all_of_them_and_reaches_the_hub() -> None:
    """Downloads and compiled kernels are kept in the volume."""
    worker = on_gpu()["services"]["worker"]
    (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert worker["networks"] == ["peers", "hub"]
    assert worker["volumes"] == ["cache:/cache"]
    assert worker["environment"]["HF_HOME"].startswith("/cache/")
