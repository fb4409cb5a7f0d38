"""The embedded model served by vLLM's own server and by tokenwire: drawn requests, replies compared field by field.

Both compute in float32, and on a GPU with vLLM's batch invariance: else the order of additions, which depends on the
batch, decides between tokens that are almost as likely. The requests and the comparison are those of `make parity`,
which explains the deliberate differences, but only requests that tokenwire accepts are compared: errors need no GPU,
and vLLM 0.26's server dies of ids beyond the vocabulary. With another vLLM than the one that the coordinator follows,
differences in fields are differences between the two; those in what was generated are none.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from gpu.kit import Kit
from gpu.parts import Parts
from gpu.servers import RunningServer
from gpu.starts import skipped_if_not_started
from gpu.steps.resume import BATCH_INVARIANT, has_batch_invariance
from tests.conformance.parity.client import ParityClient
from tests.conformance.parity.generator import generate_request
from tests.conformance.parity.report import causes_of, faults, table
from tests.conformance.parity.run import ParityOutcome, judge_all
from tests.conformance.servers import MAX_MODEL_LEN, PARSERS, PLAIN

NAME = "parity"
LIMIT_S = 300

_SEED = 1
_GENERATED = re.compile(r"\b(text|content|token_ids|tokens?|(top_|token_)?logprobs?|finish_reason|stop_reason)\b")
_OTHERS = re.compile(r"^self\.|usage|text_offset")
"""Paths of differences between tokenwire's own two replies, and in fields around what is generated."""


def run(kit: Kit) -> dict[str, Any]:
    """Return verdicts and differences by kind, for servers without and with parsers."""
    parts = Parts(kit.out)
    invariant = BATCH_INVARIANT if kit.on_cuda and has_batch_invariance() else {}
    engine = [*kit.engine_arguments(share=0.4, dtype="float32", eager=True), "--max-model-len", str(MAX_MODEL_LEN)]
    with kit.tokenwire_worker(engine=engine, environment=invariant) as worker:
        with parts.part("plain") as found, server_pair(kit, worker, engine, PLAIN, invariant, "plain") as urls:
            compare_drawn(kit, urls, "plain", 60, found)
        with parts.part("parsers") as found, server_pair(kit, worker, engine, PARSERS, invariant, "parsers") as urls:
            compare_drawn(kit, urls, "parsers", 12, found)
    return {"parts": parts.results, "engine": engine, "environment": invariant}


@contextmanager
def server_pair(
    kit: Kit,
    worker: RunningServer,
    engine: Sequence[str],
    options: Sequence[str],
    environment: dict[str, str],
    name: str,
) -> Iterator[tuple[str, str]]:
    """Run a coordinator and vLLM's server with the same options; yield their URLs."""
    # vLLM's server always takes transfer parameters.
    taken = [*options, "--allow-kv-transfer-params"]
    with ExitStack() as stack:
        with skipped_if_not_started("a coordinator with these options"):
            ours = stack.enter_context(kit.coordinator([worker], options=taken, name=f"coordinator-{name}"))
        served = kit.vllm_server(
            engine=[*engine, *options], environment=environment, name=f"vllm-{name}", number=1, timeout_s=150
        )
        theirs = stack.enter_context(served)
        yield ours.address, theirs.address


def compare_drawn(
    kit: Kit, urls: tuple[str, str], profile: str, count: int, found: dict[str, Any], seeds_in_batches: bool = False
) -> list[ParityOutcome]:
    """Compare this number of drawn requests. Raises AssertionError if something else was generated for any.

    In a batch with greedy requests some engines for CPUs ignore seeds, up to vLLM 0.28: such get one at a time.
    """
    jobs = 12 if kit.on_cuda or seeds_in_batches else 1
    outcomes = asyncio.run(_outcomes(urls, profile, count, jobs))
    (kit.out / f"differences-{profile}.md").write_text(f"{table(outcomes)}\n\n{faults(outcomes)}\n")
    found["verdicts"] = dict(Counter(outcome.verdict for outcome in outcomes))
    found["accepted"] = sum(outcome.ours.succeeded and outcome.theirs.succeeded for outcome in outcomes)
    found["kinds"] = Counter(cause for outcome in outcomes for cause in causes_of(outcome)).most_common(30)
    found["generated_differs"] = [outcome.request.name for outcome in outcomes if _generated_differs(outcome)]
    assert found["accepted"] > 0, "nothing was accepted"
    assert not found["generated_differs"], f"generated differently: {found['generated_differs']}"
    return outcomes


async def _outcomes(urls: tuple[str, str], profile: str, count: int, jobs: int) -> list[ParityOutcome]:
    drawn = [generate_request(_SEED, number, profile) for number in range(3 * count)]
    async with ParityClient(urls[0], 1) as ours:
        accepted = [request for request in drawn if (await ours.send(request)).succeeded][:count]
    return await judge_all(urls, accepted, True, jobs, lambda _: None)


def _generated_differs(outcome: ParityOutcome) -> bool:
    """Return whether what was generated is not the same."""
    paths = [difference.path for difference in outcome.differences]
    return any(_GENERATED.search(path) and not _OTHERS.search(path) for path in paths)
