"""Options set the fields that declare them, from the command line, the environment and `tokenwire serve`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Literal

import click
import pytest

from tokenwire.cli.click_options import Given, arguments, build, options_command
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS, CoordinatorOptions
from tokenwire.cli.serve import SERVE_OPTIONS
from tokenwire.cli.worker import WORKER_OPTIONS, WorkerOptions
from tokenwire.coordinator.fleet.admission.settings import UNLIMITED, AdmissionSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest
from tokenwire.options import (
    REQUIRED,
    Bounds,
    Declared,
    Option,
    Unit,
    check_bounds,
    declared,
    option,
    option_name,
    shared,
)
from tokenwire.worker.simulated_engine.settings import SimulationSettings

HALVES = {"coordinator": (CoordinatorOptions, COORDINATOR_OPTIONS), "worker": (WorkerOptions, WORKER_OPTIONS)}
TEXTS = {
    "--worker": "one:1",
    "--listen": "unix:/socket",
    "--health-listen": "one:2",
    "--metrics-listen": "one:3",
    "--history-store": "redis://one",
    "--chat-template": "{{ messages }}",
    "--default-chat-template-kwargs": '{"a": 1}',
    "--sim-fault": "crash@tokens=5",
}
NUMBERS = {"--peer-server-name": "another", "--ssl-cert-reqs": 2, "--sim-eos-rate": 0.5}


def parse(options: Mapping[str, Declared], given: Sequence[str]) -> Given:
    """Return what a command with these options receives."""
    seen: list[Given] = []
    options_command(options)(seen.append).main([*given], "tokenwire", standalone_mode=False)
    return seen[0]


def sample(each: Declared, folder: Path) -> str:
    """Return a value other than the default."""
    name = each.option.name
    if each.option.path.endswith("directory"):
        return str(folder)
    if each.option.path:
        (path := folder / "file").write_text("[1, 2]")
        return str(path)
    if each.choices:
        return next(choice for choice in each.choices if choice != each.default)
    if each.kind in (int, float):
        default = each.default if isinstance(each.default, int | float) else 40
        return str(NUMBERS.get(name, default + 1))
    return str(NUMBERS.get(name) or TEXTS.get(name, "something"))


def everything(options: Mapping[str, Declared], folder: Path) -> list[str]:
    """Return arguments that set every option."""
    given: list[str] = []
    for each in options.values():
        if each.is_switch:
            given.append(each.option.flag.rpartition("/")[2])
        elif each.option.is_flag:
            given += [each.option.name, sample(each, folder)]
        elif each.option.flag:
            given.append("model")
    return given


def leaves(settings: object) -> Iterator[tuple[str, str, object]]:
    """Yield the fields that options set: path, option, and value."""
    assert is_dataclass(settings)
    for each in fields(settings):
        value, name = getattr(settings, each.name), option_name(each)
        if name:
            yield f"{type(settings).__name__}.{each.name}", name, value
        elif is_dataclass(value):
            yield from leaves(value)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of options from the environment."""
    for _, options in HALVES.values():
        for each in options.values():
            monkeypatch.delenv(each.option.environment_variable or "-", raising=False)


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


@pytest.mark.parametrize("half", HALVES)
def test_serve_passes_options_on(half: str, tmp_path: Path) -> None:
    """Each half gets its own options unchanged."""
    _, options = HALVES[half]
    given = parse(SERVE_OPTIONS, everything(SERVE_OPTIONS, tmp_path))

    passed = parse(options, [*arguments(options, given.values), *(["--worker", "x"] if half == "coordinator" else [])])

    expected = {name: value for name, value in given.values.items() if name in options}
    assert {name: value for name, value in passed.values.items() if name != "--worker"} == expected


def test_serve_passes_on_an_explicit_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes precedence over the environment, which the halves inherit."""
    monkeypatch.setenv("TOKENWIRE_ROUTING", "load")
    given = parse(SERVE_OPTIONS, ["--routing", "affinity"])
    assert arguments(COORDINATOR_OPTIONS, given.values) == ["--routing", "affinity"]


def test_serve_takes_options_of_both_halves() -> None:
    """All of the simulated engine and of the API; none that are only for halves started separately."""
    taken = set(SERVE_OPTIONS)
    assert {name for name in WORKER_OPTIONS if name.startswith("--sim-")} <= taken
    assert {"--kv-events", "--warm-up", "--enable-rl", "--max-queue", "--ssl-certfile"} <= taken
    assert not taken & {"--worker", "--listen", "--peer-cert", "--failover-attempts", "--listen-fd", "--progress-fd"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--worker", "x:1", "--nothing"], "--nothing"),
        ([], "--worker"),
        (["--worker", "x:1", "--port", "many"], "--port"),
        (["--worker", "x:1", "--port", "70000"], "--port"),
        (["--worker", "x:1", "--max-queue-mb", "0"], "--max-queue-mb"),
        (["--worker", "x:1", "--routing", "best"], "--routing"),
        (["--worker", "x:1", "--tokenizer", "/nowhere"], "--tokenizer"),
    ],
)
def test_errors_name_the_flag(given: list[str], message: str) -> None:
    """Of unknown flags, values of another type, and values out of bounds."""
    with pytest.raises(click.UsageError) as refused:
        parse(COORDINATOR_OPTIONS, given)
    assert message in refused.value.format_message()


@pytest.mark.parametrize(
    ("build_it", "message"),
    [
        (lambda: build(CoordinatorSettings, {"--worker": ("x:1",), "--drain-delay": -1.0}), "--drain-delay must be"),
        (lambda: build(AdmissionSettings, {"--max-queue-mb": float("inf")}), "--max-queue-mb: cannot convert"),
        (lambda: CoordinatorSettings(("x:1",), port=-1), "--port must be between 0 and 65535, got -1"),
        (lambda: CoordinatorSettings(("x:1",), max_body_bytes=0), "--max-body-mb must be above 0, got 0"),
        (lambda: AdmissionSettings(queue_timeout_s=float("nan")), "--queue-timeout must be above 0, got nan"),
        (lambda: build(SimulationSettings, {"--sim-fault": ("what",)}), "--sim-fault: fault 'what'"),
        (lambda: build(CoordinatorSettings, {"--chat-template": "/nowhere"}), "--chat-template: cannot read"),
        (lambda: build(CoordinatorSettings, {"--default-chat-template-kwargs": "[]"}), "must be a JSON object"),
    ],
)
def test_settings_check_bounds_too(build_it: Callable[[], object], message: str) -> None:
    """Settings created without a command line have the same bounds, in the option's unit."""
    with pytest.raises(InvalidRequest) as refused:
        build_it()
    assert message in refused.value.message


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


def test_options_of_both_halves_are_declared_once() -> None:
    """So that help, bounds and defaults cannot differ."""
    common = COORDINATOR_OPTIONS.keys() & WORKER_OPTIONS.keys()
    assert {"--drain-timeout", "--cache-dir", "--peer-cert", "--log-level"} <= common
    for name in common:
        assert COORDINATOR_OPTIONS[name].option is WORKER_OPTIONS[name].option
        assert COORDINATOR_OPTIONS[name].default == WORKER_OPTIONS[name].default


def test_the_stop_timeout_covers_the_drain() -> None:
    """The parent process waits until the last reply may have ended."""
    given = {"--worker": ("x:1",), "--drain-delay": 20.0, "--drain-timeout": 300.0}
    assert build(CoordinatorOptions, given).stop_timeout_s > 320


@dataclass(frozen=True, slots=True)
class Inner:
    """Settings within settings."""

    size_bytes: int = option(3 * 2**20, Option("--size-mb", unit=Unit.MiB, bounds=Bounds(at_least=1, at_most=9)))
    again: tuple[str, ...] = shared((), "--name")

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True)
class Outer:
    """Every kind of declaration."""

    names: tuple[str, ...] = option(REQUIRED, Option("--name"))
    inner: Inner = Inner()
    quiet: bool = option(True, Option("--loud"))
    mode: Literal["a", "b"] | None = option(None, Option("--mode"))
    secret: str | None = option(None, Option("--secret-file", path="existing file", contents="secret"))
    token: str | None = option(None, Option("", variable="TOKEN"))


def test_types_and_defaults_come_from_the_fields() -> None:
    """They are not declared twice."""
    options = declared(Outer)

    assert list(options) == ["--name", "--size-mb", "--loud", "--mode", "--secret-file", "TOKEN"]
    assert (options["--name"].required, options["--name"].repeated) == (True, True)
    assert (options["--size-mb"].kind, options["--size-mb"].default) == (float, 3.0)
    assert options["--mode"].choices == ("a", "b")
    assert options["--loud"].is_switch


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
