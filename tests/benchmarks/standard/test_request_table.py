"""The table of requests and tokens compares servers within each round."""

from benchmarks.standard.request_table import rounds_of, table

FOUND = {
    "burst": {
        "tokenwire": [{"ms": 0.6, "ttft_ms": 150.0}, {"ms": 1.2, "ttft_ms": 300.0}, {"ms": 0.9, "ttft_ms": 200.0}],
        "smg": [{"ms": 0.6, "ttft_ms": 100.0}, {"ms": 0.8, "ttft_ms": 200.0}, {"ms": 0.75, "ttft_ms": 100.0}],
        "uvicorn": [{"ms": 0.31, "ttft_ms": 90.0}] * 3,
    },
    "tokens": {"tokenwire": [{"us": 20.0, "chunks": 1.0}, {"us": 10.0, "chunks": 0.9}]},
    "stop strings": {"tokenwire": [{"us": 22.0}, {"us": 11.0}]},
}


def line(beginning: str) -> list[str]:
    """Return the cells of the line that begins so."""
    (found,) = (each for each in table(FOUND).splitlines() if each.startswith(f"| {beginning}"))
    return [cell.strip() for cell in found.split("|")[1:-1]]


def test_a_line_has_the_medians_and_the_median_of_the_ratios() -> None:
    """Rounds of a slow moment do not count for more."""
    assert line("streamed chat of one token")[1:] == [
        *("SMG's", "2.85, 0.80", "0.90 ms", "0.75 ms", "-", "1.20", "bare uvicorn: 0.31 ms")
    ]


def test_a_case_has_a_line_for_each_figure() -> None:
    """Times beside the CPU."""
    assert line("time to the first token")[3:5] == ["200 ms", "100 ms"]


def test_what_was_not_measured_has_no_figure() -> None:
    """A server that has no such route, or that was left out."""
    assert line("completion of ids")[3:7] == ["-", "-", "-", "-"]


def test_tokens_with_more_to_do_are_compared_with_plain_ones() -> None:
    """Of tokenwire itself."""
    assert "* A token with 4 stop strings costs tokenwire 1.10 times a plain one." in table(FOUND)


def test_the_number_of_rounds_is_known() -> None:
    """The most that a case had."""
    assert rounds_of(FOUND) == "Medians of 3 rounds"
