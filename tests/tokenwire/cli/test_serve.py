"""`tokenwire serve` takes the options of both halves and passes each its own."""

from pathlib import Path

import pytest

from tests.tokenwire.cli.given import HALVES, everything, parse
from tokenwire.cli.click_options import arguments
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS
from tokenwire.cli.serve import SERVE_OPTIONS, command
from tokenwire.cli.worker import WORKER_OPTIONS
from tokenwire.errors import InvalidRequest


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


def test_serve_takes_no_option_of_the_simulated_engine_for_vllm() -> None:
    """Before it starts either half."""
    with pytest.raises(InvalidRequest, match=r"Only the simulated engine, --engine sim, takes --sim-step-ms$"):
        command.main(["--engine", "vllm", "--sim-step-ms", "1"], "tokenwire", standalone_mode=False)


def test_serve_takes_options_of_both_halves() -> None:
    """All of the simulated engine and of the API; none that are only for halves started separately."""
    taken = set(SERVE_OPTIONS)
    assert {name for name in WORKER_OPTIONS if name.startswith("--sim-")} <= taken
    assert {"--kv-events", "--warm-up", "--enable-rl", "--max-queue", "--ssl-certfile"} <= taken
    assert not taken & {"--worker", "--listen", "--peer-cert", "--failover-attempts", "--listen-fd", "--progress-fd"}
