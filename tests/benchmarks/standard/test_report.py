"""The page of the standard benchmarks shows the committed results."""

import json
from pathlib import Path
from typing import Any

from benchmarks.standard.__main__ import PARTS, REQUESTS, RESULTS, read
from benchmarks.standard.report import tables
from benchmarks.standard.request_cases import BEHIND_CASES, CASES
from tests.marked_part import MarkedPart

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "standard-benchmarks.md"


def row(server: str, **figures: Any) -> dict[str, Any]:
    """Return a row of the front-end-bound loads."""
    load = {"streams": 8, "requests": 10, "input_tokens": 64, "output_tokens": 20}
    measured = {
        **{"completed": 10, "failed": 0, "requests_per_s": 5.0, "output_tokens": 200, "output_tokens_per_s": 100.0},
        **{"ttft_p50_ms": 20.0, "ttft_p99_ms": 30.0, "itl_p50_ms": 20.0, "itl_p99_ms": 21.0},
        **{"front_end_cpu_s": 0.02, "engine_cpu_s": 0.1, "driver_cpu_s": 8.0},
    }
    return {"server": server, "tool": "AIPerf", "load": load, **(figures or measured)}


def part_of(*rows: dict[str, Any]) -> dict[str, Any]:
    """Return the results of one part."""
    about = {"when": "2026-11-25", "cpus": 2, "python": "3.11.7", "versions": {"aiperf": "0.13.0"}, "note": "busy"}
    return {"front-end": {**about, "rows": list(rows)}}


def lines(text: str) -> list[list[str]]:
    """Return the cells of a table's lines, without its head."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return cells[2:]


def test_servers_stand_below_each_other() -> None:
    """Tokenwire first, whichever was measured first; the load is named once."""
    first, second = lines(tables(part_of(row("vllm"), row("tokenwire"))))

    assert first[:2] == ["AIPerf: 8 streams, 10 requests, 64 tokens in, 20 out", "tokenwire"]
    assert second[:2] == ["", "`vllm serve`"]


def test_cpu_time_is_that_of_a_request_and_of_a_token() -> None:
    """Of the front end; the driver's stands beside it."""
    ((*_, request, token, _, driver),) = lines(tables(part_of(row("smg"))))

    assert (request, token, driver) == ("2.00", "100", "8.00")


def test_a_load_that_was_skipped_says_why() -> None:
    """Instead of figures."""
    (cells,) = lines(tables(part_of(row("smg", skipped="no time was left"))))

    assert cells[1:3] == ["SMG", "no time was left"]


def test_the_note_stands_with_the_machine() -> None:
    """What else ran belongs to the figures."""
    assert "2 cores, Python 3.11.7; aiperf 0.13.0. busy.*" in tables(part_of(row("smg")))


def test_the_page_shows_the_committed_results() -> None:
    """All tables, word for word."""
    assert MarkedPart("standard").read(PAGE) == tables(read(RESULTS))


def test_all_parts_were_measured_on_all_servers() -> None:
    """Nothing was skipped."""
    found = read(RESULTS)

    assert list(found) == [REQUESTS, *PARTS]
    for name, part in PARTS.items():
        assert {each["server"] for each in found[name]["rows"]} == {"tokenwire", "smg", "vllm"}
        assert len(found[name]["rows"]) == 3 * len(part.plan)
        assert not [each for each in found[name]["rows"] if "skipped" in each]


def test_requests_were_measured_on_all_their_servers() -> None:
    """In as many rounds each."""
    found = read(RESULTS)[REQUESTS]["rounds"]
    cases = {**CASES, **BEHIND_CASES}

    assert {name: set(servers) for name, servers in found.items()} == {
        name: set(case.servers) for name, case in cases.items()
    }
    for servers in found.values():
        assert len({len(rounds) for rounds in servers.values()}) == 1


def test_results_name_nothing_of_a_machine() -> None:
    """Neither folders nor addresses."""
    written = json.dumps(read(RESULTS))

    assert not [text for text in ("127.0.0.1", "localhost", "/tmp", "/root", "/work", "http") if text in written]
