"""The compose file is valid and matches the commands."""

from pathlib import Path

import pytest
import yaml

compose = pytest.importorskip("compose_spec.compose_spec", reason="needs the extra `deploy`")

FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"


def test_the_compose_file_is_valid() -> None:
    """It follows the specification, and all named networks and volumes exist."""
    whole = yaml.safe_load(FILE.read_text())
    compose.PyCompose.from_dict(whole).validate()
    whole["services"]["worker"]["networks"] = ["elsewhere"]
    with pytest.raises(ValueError, match="elsewhere"):
        compose.PyCompose.from_dict(whole).validate()


def test_services_are_locked_down() -> None:
    """No service can write to its root or gain privileges, and each has longer to stop than it drains."""
    for service in yaml.safe_load(FILE.read_text())["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["stop_grace_period"].removesuffix("s")) > 30
        assert (FILE.parent / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_only_the_coordinator_can_be_reached() -> None:
    """The worker has an internal network, and the coordinator listens on loopback."""
    whole = yaml.safe_load(FILE.read_text())
    assert whole["networks"]["peers"] == {"internal": True}
    assert whole["services"]["worker"]["networks"] == ["peers"]
    assert "ports" not in whole["services"]["worker"]
    assert all(port.startswith("127.0.0.1:") for port in whole["services"]["coordinator"]["ports"])
