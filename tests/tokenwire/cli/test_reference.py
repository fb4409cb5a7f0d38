"""The generated reference of options is current."""

import json
import re
from pathlib import Path

import pytest

from tokenwire.cli.coordinator import COORDINATOR_OPTIONS
from tokenwire.cli.reference import CHART, DEFAULTS, PAGE, SCHEMA, defaults, page, schema
from tokenwire.cli.serve import SERVE_OPTIONS
from tokenwire.cli.worker import WORKER_OPTIONS

ROOT = Path(__file__).parents[3]
OPTIONS = {"coordinator": COORDINATOR_OPTIONS, "worker": WORKER_OPTIONS}

GENERATED = {"engine": "--engine", "kvEvents": "--kv-events", "servedModelName": "--served-model-name"}
"""Values of a pool that are flags, as the flags' declarations allow."""
WHOLE_SECONDS = {
    ("coordinator", "delaySeconds"): "--drain-delay",
    ("coordinator", "timeoutSeconds"): "--drain-timeout",
    ("worker", "timeoutSeconds"): "--drain-timeout",
}
"""Values under `drain`, narrower than their flags: a pod's grace period and the sleep of its hook are whole seconds."""
ARRANGED = {
    *("--host", "--port", "--listen", "--health-listen", "--metrics-listen", "--worker", "--expect-model"),
    *("--cache-dir", "--chat-template", "--api-keys-file", "--admin-key-file", "--operations-key-file"),
    *("--ssl-certfile", "--ssl-keyfile"),
    *("--peer-cert", "--peer-key", "--peer-ca", "--peer-token-file"),
}
"""Addresses and mounted files, which templates choose; not vLLM's flags after `--`."""


def test_the_page_is_current() -> None:
    """After a change of an option: `make reference`."""
    assert (ROOT / PAGE).read_text() == page()


def test_the_charts_schema_is_current() -> None:
    """Also if a template has started to set an option, which `options` then no longer accepts."""
    text = (ROOT / SCHEMA).read_text()
    assert text == schema(text, ROOT / CHART / "templates")


def test_the_charts_defaults_are_current() -> None:
    """Those that its templates compute with."""
    assert (ROOT / DEFAULTS).read_text() == defaults()
    assert "ternary 60.0 600.0" in defaults()


def test_the_page_has_every_option() -> None:
    """With its variable, except those of tokenwire's own processes."""
    written = page()
    for options in (*OPTIONS.values(), SERVE_OPTIONS):
        for each in options.values():
            cell = f"`{each.option.flag or each.option.variable}`"
            assert (cell in written) != each.option.hidden, each.option.name
            assert f"`{each.option.environment_variable}`" in written or each.option.hidden
    assert "| `--max-queue-mb` | `TOKENWIRE_MAX_QUEUE_MB` | MiB, above 0 | `256` | serve, coordinator |" in written


def test_every_variable_that_the_code_names_is_declared() -> None:
    """So that the page has it: none is read around the options."""
    files = [path for half in ("coordinator", "worker", "tokenwire") for path in (ROOT / half).rglob("*.py")]
    named = {name for path in files for name in re.findall(r"\bTOKENWIRE_[A-Z_]*[A-Z]\b", path.read_text())}
    declared = [each.option for options in OPTIONS.values() for each in options.values()]

    assert "TOKENWIRE_KUBERNETES_API" in named
    assert named <= {name for each in declared for name in (each.environment_variable, each.secret_variable)}


@pytest.mark.parametrize("half", OPTIONS)
def test_the_chart_accepts_every_option_that_its_templates_do_not_set(half: str) -> None:
    """Those that templates set have values of their own; hidden ones cannot be set."""
    properties = json.loads((ROOT / SCHEMA).read_text())["definitions"][f"{half}Options"]["properties"]
    templates = {"coordinator": "coordinator/deployment.yaml", "worker": "worker/_pod.tpl"}
    texts = [(ROOT / CHART / "templates" / name).read_text() for name in (templates[half], "_helpers.tpl")]
    rendered = "".join(texts).replace('{{ printf "', "")

    for name, each in OPTIONS[half].items():
        may_be_given = each.option.is_flag and not each.option.hidden and f"- {name}" not in rendered
        names = {side.removeprefix("--") for side in each.option.flag.split("/")}
        assert bool(names & properties.keys()) == may_be_given, name


def properties_of(*path: str) -> dict[str, dict[str, object]]:
    """Return the properties of an object in the chart's schema."""
    found = json.loads((ROOT / SCHEMA).read_text())
    for name in path:
        found = found["definitions"][name] if name == "worker" else found["properties"][name]
    properties: dict[str, dict[str, object]] = found["properties"]
    return properties


def test_values_of_the_chart_that_are_flags_are_checked_as_declared() -> None:
    """The schema refers to generated definitions, unless Kubernetes allows less."""
    pool = properties_of("worker")
    for value, name in GENERATED.items():
        assert pool[value] == {"$ref": f"#/definitions/{name}"}
    for (half, value), name in WHOLE_SECONDS.items():
        assert properties_of(half, "drain")[value] == {"type": "integer", "minimum": 1}
        bounds = OPTIONS[half][name].option.bounds
        assert bounds is not None
        assert 1 in bounds


def test_every_flag_that_templates_render_is_of_a_known_kind() -> None:
    """A flag that takes a value of the chart is generated or listed."""
    rendered = set()
    for name in ("coordinator/deployment.yaml", "worker/_pod.tpl", "_helpers.tpl"):
        rendered |= set(re.findall(r"--[a-z][a-z-]+", (ROOT / CHART / "templates" / name).read_text()))

    known = {name for options in OPTIONS.values() for name in options}
    assert rendered & known == {*GENERATED.values(), *WHOLE_SECONDS.values(), *ARRANGED}


def test_a_schema_without_its_generated_part_is_rejected() -> None:
    """Nothing is appended to another file."""
    with pytest.raises(ValueError, match="coordinatorOptions"):
        schema("{}", ROOT / CHART / "templates")
