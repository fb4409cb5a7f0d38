"""`python -m tests.conformance.parity`: the whole comparison, or one request of it again."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.parity.corpus import corpus
from tests.conformance.parity.document import write_document
from tests.conformance.parity.generator import generate
from tests.conformance.parity.report import describe, faults, reasons, table
from tests.conformance.parity.request import Request
from tests.conformance.parity.run import DIFFERENT, Outcome, run
from tests.conformance.servers import PLAIN, VllmServer, serving


def main() -> int:
    """Run what the command line asks for; 1 where something differs without an explanation."""
    options = _options()
    started = time.monotonic()
    with _servers(options.ours, options.reference) as urls:
        written, generated = _requests(options)
        outcomes = asyncio.run(run(urls, written, False, options.jobs, _progress))
        outcomes += asyncio.run(run(urls, generated, True, options.jobs, _progress))
    print(f"\n{table(outcomes)}\n\n{reasons(outcomes)}\n\n{time.monotonic() - started:.0f} s", flush=True)
    differing = [outcome for outcome in outcomes if outcome.verdict == DIFFERENT]
    if options.report:
        options.report.write_text(f"{table(outcomes)}\n\n{reasons(outcomes)}\n\n{faults(outcomes)}")
    elif options.only:
        print("\n".join(describe(outcome, 50) for outcome in outcomes))
    else:
        print(faults(differing))
    if options.document:
        write_document(options.document, outcomes, options.seed)
    return 1 if differing else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.parity", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many requests to draw")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from")
    parser.add_argument("--jobs", type=int, default=12, help="how many requests are under way at a time")
    parser.add_argument("--only", action="append", help="a drawn request's number, or part of a written one's name")
    parser.add_argument("--no-corpus", action="store_true", help="leave the written requests out")
    parser.add_argument("--report", type=Path, help="write all differences into this file, by cause")
    parser.add_argument("--document", type=Path, help="write the tables into this file, with how to read them")
    parser.add_argument("--ours", help="the URL of a tokenwire that already runs")
    parser.add_argument("--reference", help="the URL of a vLLM server that already runs")
    return parser.parse_args()


def _requests(options: argparse.Namespace) -> tuple[list[Request], list[Request]]:
    """Return the written and the drawn requests that were asked for."""
    if options.only:
        numbers = [int(part) for part in options.only if part.isdecimal()]
        names = [part for part in options.only if not part.isdecimal()]
        written = [request for request in corpus() if any(name in request.name for name in names)]
        return written, [generate(options.seed, number) for number in numbers]
    written = [] if options.no_corpus else corpus()
    return written, [generate(options.seed, number) for number in range(options.cases)]


@contextmanager
def _servers(ours: str | None, reference: str | None) -> Iterator[tuple[str, str]]:
    """Start the servers that do not run yet; yields the URLs of tokenwire and vLLM."""
    if ours and reference:
        yield ours, reference
        return
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        print("starting vLLM and tokenwire with the embedded model …", flush=True)
        vllm = VllmServer(Path(folder), PLAIN)
        try:
            with serving(Path(folder), PLAIN) as service:
                vllm.wait_ready()
                yield service.url, vllm.url
        finally:
            vllm.stop()


_done = 0


def _progress(outcome: Outcome) -> None:
    """Print a sign of life now and then, and every difference's name at once."""
    global _done
    _done += 1
    if outcome.verdict == DIFFERENT:
        print(f"differs: {outcome.request.name}", file=sys.stderr)
    if _done % 200 == 0:
        print(f"{_done} requests compared", flush=True)


if __name__ == "__main__":
    sys.exit(main())
