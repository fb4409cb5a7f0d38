"""Options are declared once, in the fields that they set."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import get_type_hints

import pytest

from tests.tokenwire.declarations import Outer
from tokenwire.cli.click_options import build
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS, CoordinatorOptions
from tokenwire.cli.worker import WORKER_OPTIONS, WorkerOptions
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.http.backpressure import BodySettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest
from tokenwire.options import declared, name_of, nested, option_name, option_of
from tokenwire.worker.simulated_engine.settings import SimulationSettings


@pytest.mark.parametrize(
    ("build_it", "message"),
    [
        (lambda: build(CoordinatorSettings, {"--worker": ("x:1",), "--drain-delay": -1.0}), "--drain-delay must be"),
        (lambda: build(AdmissionSettings, {"--max-queue-mb": float("inf")}), "--max-queue-mb: cannot convert"),
        (lambda: CoordinatorSettings(("x:1",), port=-1), "--port must be between 0 and 65535, got -1"),
        (lambda: BodySettings(max_body_bytes=0), "--max-body-mb must be above 0, got 0"),
        (lambda: AdmissionSettings(queue_timeout_s=float("nan")), "--queue-timeout must be above 0, got nan"),
        (lambda: build(SimulationSettings, {"--sim-fault": ("what",)}), "--sim-fault: fault 'what'"),
        (lambda: build(CoordinatorSettings, {"--chat-template": "/nowhere"}), "--chat-template: cannot read"),
        (lambda: build(CoordinatorSettings, {"--default-chat-template-kwargs": "[]"}), "must be a JSON object"),
    ],
)
def test_settings_check_bounds_too(build_it: Callable[[], object], message: str) -> None:
    """Settings created without a command line have the same bounds, in the option's unit."""
    with pytest.raises(InvalidRequest) as rejected:
        build_it()
    assert message in rejected.value.message


def test_options_of_both_halves_are_declared_once() -> None:
    """So that help, bounds and defaults cannot differ."""
    common = COORDINATOR_OPTIONS.keys() & WORKER_OPTIONS.keys()
    assert {"--drain-timeout", "--cache-dir", "--peer-cert", "--log-level"} <= common
    for name in common:
        assert COORDINATOR_OPTIONS[name].option is WORKER_OPTIONS[name].option
        assert COORDINATOR_OPTIONS[name].default == WORKER_OPTIONS[name].default


def test_types_and_defaults_come_from_the_fields() -> None:
    """They are not declared twice."""
    options = declared(Outer)

    assert list(options) == ["--name", "--size-mb", "--loud", "--mode", "--secret-file", "TOKEN"]
    assert (options["--name"].required, options["--name"].repeated) == (True, True)
    assert (options["--size-mb"].kind, options["--size-mb"].default) == (float, 3.0)
    assert options["--mode"].choices == ("a", "b")
    assert options["--loud"].is_switch


def test_names_of_options_come_from_their_fields() -> None:
    """A field that does not exist, or that no option sets, has none."""
    assert name_of(AdmissionSettings, "max_queue") == "--max-queue"
    for missing in (Outer, "nothing"), (Outer, "inner"):
        with pytest.raises(ValueError, match="not enough values"):
            name_of(*missing)


def _names(settings: type) -> Iterator[str]:
    yield from filter(None, map(option_name, fields(settings)))
    for part in nested(settings).values():
        yield from _names(part)


def _fields(settings: type) -> Iterator[tuple[str, bool, tuple[object, object]]]:
    """Return every field set by an option: the option's name, whether the field declares it, its type and default."""
    hints = get_type_hints(settings)
    for each in fields(settings):
        if name := option_name(each):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield name, option_of(each) is not None, (hints[each.name], default)
    for part in nested(settings).values():
        yield from _fields(part)


@pytest.mark.parametrize("settings", [CoordinatorOptions, WorkerOptions])
def test_shared_options_and_conditions_are_declared(settings: type) -> None:
    """A field set by another field's option, or a default that depends on one, names an option of the command.

    Such a field has that field's type and default.
    """
    options = declared(settings)
    own, others = {}, []
    for name, is_own, about in _fields(settings):
        if is_own:
            own[name] = about
        else:
            others.append((name, about))
    assert others
    assert [name for name, about in others if about != own[name]] == []
    conditions = {each.option.default_with[0] for each in options.values() if each.option.default_with}
    assert {*_names(settings), *conditions} <= {*options}
