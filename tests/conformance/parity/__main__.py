"""`python -m tests.conformance.parity`: the whole comparison, or single requests of it."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.parity.corpus import PARSER_TOPICS, TOPICS, corpus
from tests.conformance.parity.document import write_document
from tests.conformance.parity.generator import generate_request
from tests.conformance.parity.premises import wrong_premise
from tests.conformance.parity.report import describe, faults, reasons, table
from tests.conformance.parity.request import Request
from tests.conformance.parity.run import DIFFERENT, ParityOutcome, judge_all
from tests.conformance.servers import PARSERS, PLAIN, VllmServer, running_service

PROFILES = {"plain": (TOPICS, PLAIN), "parsers": (PARSER_TOPICS, PARSERS)}
"""The written requests and the options of both servers."""


def main() -> int:
    """Run the selected requests; return 1 if there are unexplained differences."""
    options = _options()
    started = time.monotonic()
    outcomes: list[ParityOutcome] = []
    for profile in options.profile or PROFILES:
        written, drawn = _requests(options, profile)
        if written or drawn:
            with _servers(options.ours, options.reference, profile) as urls:
                outcomes += asyncio.run(judge_all(urls, written, False, options.jobs, _progress))
                outcomes += asyncio.run(judge_all(urls, drawn, True, options.jobs, _progress))
    print(f"\n{table(outcomes)}\n\n{reasons(outcomes)}\n\n{time.monotonic() - started:.0f} s", flush=True)
    _show(options, outcomes)
    if options.document:
        write_document(options.document, outcomes, options.seed)
    return 1 if any(outcome.verdict == DIFFERENT for outcome in outcomes) else 0


def _show(options: argparse.Namespace, outcomes: list[ParityOutcome]) -> None:
    """Print or write the differences, and every outcome of selected requests."""
    for outcome in outcomes:
        if wrong := wrong_premise(outcome.request, outcome.theirs):
            print(f"not what it says: {outcome.request.name}: {wrong}")
    if options.report:
        options.report.write_text(f"{table(outcomes)}\n\n{reasons(outcomes)}\n\n{faults(outcomes)}")
    elif options.only:
        print("\n".join(f"{outcome.verdict} {describe(outcome, 50)}" for outcome in outcomes))
    else:
        print(faults(outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.parity", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many requests to draw")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from")
    parser.add_argument("--jobs", type=int, default=12, help="how many requests are under way at a time")
    parser.add_argument("--only", action="append", help="a drawn request's number, or part of a written one's name")
    parser.add_argument("--no-corpus", action="store_true", help="leave the written requests out")
    parser.add_argument("--report", type=Path, help="write all differences into this file, by cause")
    parser.add_argument("--document", type=Path, help="write the tables into this file, with how to read them")
    parser.add_argument("--profile", action="append", choices=list(PROFILES), help="one kind of servers; default: all")
    parser.add_argument("--ours", help="the URL of a tokenwire that already runs")
    parser.add_argument("--reference", help="the URL of a vLLM server that already runs")
    return parser.parse_args()


def _requests(options: argparse.Namespace, profile: str) -> tuple[list[Request], list[Request]]:
    """Return the selected written and random requests; servers with parsers get a tenth."""
    topics, servers_options = PROFILES[profile]
    if options.only:
        numbers = [int(part) for part in options.only if part.isdecimal()]
        names = [part for part in options.only if not part.isdecimal()]
        written = [request for request in corpus(topics) if any(name in request.name for name in names)]
    else:
        numbers = list(range(options.cases if servers_options is PLAIN else options.cases // 10))
        written = [] if options.no_corpus else corpus(topics)
    return written, [generate_request(options.seed, number, profile) for number in numbers]


@contextmanager
def _servers(ours: str | None, reference: str | None, profile: str) -> Iterator[tuple[str, str]]:
    """Start the servers that are not running; yield the URLs of tokenwire and vLLM."""
    if ours and reference:
        yield ours, reference
        return
    _, servers_options = PROFILES[profile]
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        print(f"starting vLLM and tokenwire with the embedded model ({profile}) …", flush=True)
        vllm = VllmServer(Path(folder), servers_options)
        try:
            with running_service(Path(folder), servers_options) as service:
                vllm.wait_ready()
                yield service.url, vllm.url
        finally:
            vllm.stop()


_done = 0


def _progress(outcome: ParityOutcome) -> None:
    """Print the progress now and then, and the name of every difference immediately."""
    global _done
    _done += 1
    if outcome.verdict == DIFFERENT:
        print(f"differs: {outcome.request.name}", file=sys.stderr)
    if _done % 200 == 0:
        print(f"{_done} requests compared", flush=True)


if __name__ == "__main__":
    sys.exit(main())
