"""The systemd units start commands that exist, stop them after their drain, and lock them down.

No test starts them: that needs systemd as PID 1.
"""

import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tokenwire.cli.main import LazyGroup

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = {"coordinator": FOLDER / "tokenwire-coordinator.service", "worker": FOLDER / "tokenwire-worker@.service"}
ENVIRONMENT = {"coordinator": ["--worker=127.0.0.1:50051"], "worker": []}
"""What the environment files must have."""


def settings(name: str) -> dict[str, list[str]]:
    """Return the settings of a unit's service, each with all of its values."""
    section = ""
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNITS[name].read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_with_options_that_exist(name: str, tmp_path: Path) -> None:
    """Each of its credentials is a file that the command reads."""
    service = settings(name)
    for each in service["LoadCredential"]:
        (tmp_path / each.partition(":")[0]).write_text("secret")
    (line,) = service["ExecStart"]
    program, command, *arguments = shlex.split(line.replace("%d", str(tmp_path)).replace("%C", str(tmp_path)))
    group = LazyGroup("tokenwire")
    found = group.get_command(group.make_context("tokenwire", ["--help"], resilient_parsing=True), command)

    assert Path(program).name == "tokenwire"
    assert found is not None
    found.make_context(command, [*arguments, *ENVIRONMENT[name]])
    assert {each.partition(":")[0] for each in service["LoadCredential"]} == {
        Path(each.partition("=")[2]).name for each in arguments if each.partition("=")[2].startswith(f"{tmp_path}/")
    } - {f"tokenwire-{name}"}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_stops_after_the_drain(name: str) -> None:
    """SIGTERM goes to the main process, which has longer than its drain and the 15 s that follow."""
    service = settings(name)
    (line,) = service["ExecStart"]
    (drain,) = [float(each.partition("=")[2]) for each in line.split() if each.startswith("--drain-timeout=")]

    assert service["KillSignal"] == ["SIGTERM"]
    assert service["KillMode"] == ["mixed"]
    assert float(service["TimeoutStopSec"][0]) >= drain + 15


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_locked_down(name: str) -> None:
    """It has a user of its own, no privileges, and writes only to its cache."""
    service = settings(name)
    for key, value in {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "Restart": "on-failure",
        "CacheDirectory": f"tokenwire-{name}",
    }.items():
        assert service[key] == [value]
    assert not any("KEY" in each or "TOKEN" in each for each in service["Environment"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(("name", "exposure"), [("coordinator", "2.0"), ("worker", "2.5")])
def test_systemd_has_nothing_to_say_about_a_unit(name: str, exposure: str, tmp_path: Path) -> None:
    """It knows each setting, and rates the exposure from 0 to 10."""
    unit = tmp_path / UNITS[name].name.replace("@", "@0")
    unit.write_text(UNITS[name].read_text().replace("/opt/tokenwire/bin/tokenwire", "/bin/true"))

    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    threshold = f"--threshold={exposure.replace('.', '')}"
    rated = subprocess.run(["systemd-analyze", "security", "--offline=yes", threshold, unit], capture_output=True)

    assert (verified.returncode, verified.stderr) == (0, "")
    assert rated.returncode == 0, rated.stdout.decode()
