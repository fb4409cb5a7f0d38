"""Options set the fields that declare them, from the command line and the environment."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from tests.tokenwire.cli.given import HALVES, everything, parse
from tests.tokenwire.declarations import Inner, Outer
from tokenwire.cli.click_options import build
from tokenwire.cli.coordinator import CoordinatorOptions
from tokenwire.coordinator.fleet.admission.settings import UNLIMITED, AdmissionSettings
from tokenwire.errors import InvalidRequest
from tokenwire.options import (
    declared,
    option_name,
)
from tokenwire.worker.simulated_engine.settings import SimulationSettings


def leaves(settings: object) -> Iterator[tuple[str, str, object]]:
    """Yield the fields that options set: path, option, and value."""
    assert is_dataclass(settings)
    for each in fields(settings):
        value, name = getattr(settings, each.name), option_name(each)
        if name:
            yield f"{type(settings).__name__}.{each.name}", name, value
        elif is_dataclass(value):
            yield from leaves(value)


@pytest.mark.parametrize("half", HALVES)
def test_every_flag_sets_its_field(half: str, tmp_path: Path) -> None:
    """No field of an option has its default if all options are given."""
    settings, options = HALVES[half]
    plain = settings() if half == "worker" else build(CoordinatorOptions, {"--worker": ("other:1",)})

    full: object = build(settings, parse(options, everything(options, tmp_path)).values)

    before = {place: value for place, _, value in leaves(plain)}
    unset = {place for place, name, value in leaves(full) if name in options and options[name].option.is_flag}
    unset = {place for place, _, value in leaves(full) if place in unset and value == before[place]}
    assert not unset


@pytest.mark.parametrize("half", HALVES)
def test_the_environment_sets_the_same(half: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every visible option has a variable, equivalent to the flag."""
    options = {name: each for name, each in HALVES[half][1].items() if each.option.flag and not each.option.hidden}
    given = parse(options, everything(options, tmp_path)).values
    for name, value in given.items():
        only = value[0] if isinstance(value, tuple) else value
        monkeypatch.setenv(options[name].option.environment_variable, str(only))

    assert dict(parse(options, []).values) == dict(given)


def test_an_invalid_script_names_its_flag(tmp_path: Path) -> None:
    """Files are read when settings are created."""
    (path := tmp_path / "script").write_text('{"a": 1}')
    with pytest.raises(InvalidRequest, match=r"--sim-script: .* must hold a list of token ids"):
        build(SimulationSettings, {"--sim-script": path})
    path.write_text(json.dumps([5, 6]))
    assert build(SimulationSettings, {"--sim-script": path}).script == (5, 6)


def test_enable_rl_changes_defaults() -> None:
    """Flags override them like other defaults."""
    trainers = build(AdmissionSettings, {"--enable-rl": True})
    assert (trainers.queue_timeout_s, trainers.max_queue) == (600.0, UNLIMITED)
    assert build(AdmissionSettings, {"--enable-rl": True, "--queue-timeout": 60.0}).queue_timeout_s == 60.0
    assert build(AdmissionSettings, {"--enable-rl": False}) == AdmissionSettings()


def test_values_become_settings() -> None:
    """Units are converted, switches invert the default, and one option may set two fields."""
    made = build(Outer, parse(declared(Outer), ["--name", "x", "--name", "y", "--size-mb", "2.5", "--loud"]).values, {})

    assert made == Outer(("x", "y"), Inner(5 * 2**19, ("x", "y")), quiet=False)


def test_secrets_come_from_files_or_variables_and_do_not_show(tmp_path: Path) -> None:
    """The file takes precedence over the variable."""
    (path := tmp_path / "secret").write_text("hidden-1\n")
    environment = {"TOKENWIRE_SECRET": "hidden-2", "TOKEN": "hidden-3"}

    made = build(Outer, {"--name": ("x",), "--secret-file": path}, environment)

    assert (made.secret, made.token) == ("hidden-1", "hidden-3")
    assert build(Outer, {"--name": ("x",)}, environment).secret == "hidden-2"
    assert "hidden" not in repr(made)
