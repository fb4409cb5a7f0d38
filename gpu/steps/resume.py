"""Two engines behind one coordinator, one killed in mid-reply: no stream is lost, and which are exact to the last id.

On a GPU the order of additions depends on what else is in a batch, so that greedy ids may differ without any fault.
Everything is therefore measured twice: as engines are started by default, and with vLLM's batch invariance. The same
requests are also sent twice to one engine that nothing happens to: what differs there is noise and nothing else.

A seeded reply can be continued elsewhere if the engine gives the same ids again. vLLM 0.26's engine for CPUs does not
where a batch has greedy requests too: there, such a reply is not expected to go on.
"""

import asyncio
import json
import re
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from gpu.kit import Kit
from gpu.parts import Parts
from gpu.servers import RunningServer, started_together
from gpu.step import Skipped
from tests.faults.long_replies import CASES, STORY, ChatAnswer, all_answers, announce, start_answers
from tests.processes import wait_routable

NAME = "resume"
LIMIT_S = 300

BATCH_INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}
_GREEDY = {"messages": STORY, "stream": True, "temperature": 0, "return_token_ids": True}


def run(kit: Kit) -> dict[str, Any]:
    """Return, for each way to start the engines, what became of every stream."""
    parts = Parts(kit.out)
    with parts.part("as is") as found:
        _kill_in_mid_reply(kit, "as-is", {}, found)
    with parts.part("batch invariant") as found:
        if not kit.on_cuda:
            raise Skipped("on a CPU in float32 a sequence does not depend on its batch")
        if not has_batch_invariance():
            raise Skipped("this vLLM has no VLLM_BATCH_INVARIANT")
        _kill_in_mid_reply(kit, "invariant", BATCH_INVARIANT, found)
    return {"parts": parts.results}


def has_batch_invariance() -> bool:
    """Return whether this vLLM has the mode in which a sequence does not depend on its batch."""
    from vllm import envs

    return "VLLM_BATCH_INVARIANT" in envs.environment_variables


def long_cases(tokens: int) -> dict[str, dict[str, Any]]:
    """Return requests whose replies have about this many tokens: greedy, seeded, scored and structured ones."""
    numbers = {"type": "array", "items": {"type": "integer"}, "minItems": tokens // 3, "maxItems": tokens // 3}
    schema = {"type": "json_schema", "json_schema": {"name": "numbers", "schema": numbers}}
    words = {"regex": rf"[a-z]{{4}}( [a-z]{{4}}){{{tokens // 2}}}"}
    plain = {name: {**body, "max_tokens": tokens} for name, body in CASES.items() if "tools" not in body}
    return {
        **plain,
        "schema": {**_GREEDY, "max_tokens": 4 * tokens, "response_format": schema},
        "regex": {**_GREEDY, "max_tokens": 4 * tokens, "structured_outputs": words},
    }


def _kill_in_mid_reply(kit: Kit, name: str, environment: dict[str, str], found: dict[str, Any]) -> None:
    cases = long_cases(600 if kit.on_cuda else 150)
    place = kit.out / name
    place.mkdir(exist_ok=True)
    with ExitStack() as stack:
        workers = _two_workers(kit, name, environment, stack)
        found["ready_s"] = [worker.ready_s for worker in workers]
        resume_elsewhere(kit, workers, place, cases, found)
    _judge(kit, cases, found)


def resume_elsewhere(
    kit: Kit, workers: list[RunningServer], place: Path, cases: dict[str, dict[str, Any]], found: dict[str, Any]
) -> None:
    """Kill the first of two workers while it replies; `found` gets what became of each reply, by its case."""
    announce(place, workers[0].address)
    with kit.coordinator([f"file:{place}/workers"], name=f"{place.relative_to(kit.out)}/coordinator") as coordinator:
        undisturbed, again, answers = asyncio.run(_runs(coordinator, workers, place, cases, found))
        found["resumed"] = sum(map(int, re.findall(r"resuming (\d+) sequence", coordinator.process.log)))
    found["noise"] = {case: differs_at(again[case], undisturbed[case]) for case in cases}
    found["streams"] = {case: compared(answers[case], undisturbed[case]) for case in cases}
    found["lost"] = [case for case, seen in found["streams"].items() if seen["lost"]]
    found["exact"] = [case for case, seen in found["streams"].items() if seen["exact"]]


def _two_workers(kit: Kit, name: str, environment: dict[str, str], stack: ExitStack) -> list[RunningServer]:
    """Start two at once on a GPU, where the memory of their caches is given: neither measures what is free."""
    engine = kit.engine_arguments(share=0.4, eager=True)
    engine += ["--kv-cache-memory-bytes", str(8 * 2**30)] if kit.on_cuda else []
    starts = {
        f"{name}/worker-{number}": partial(
            kit.tokenwire_worker,
            engine=engine,
            environment=environment,
            name=f"{name}/worker-{number}",
            number=number,
        )
        for number in range(2)
    }
    servers = stack.enter_context(started_together(starts, at_once=2 if kit.on_cuda else 1))
    return [servers[each] for each in starts]


def _judge(kit: Kit, cases: Collection[str], found: dict[str, Any]) -> None:
    """Raise AssertionError if a stream was lost, or none moved; on a CPU also if one that can be exact was not."""
    expected = [case for case in cases if kit.on_cuda or found["noise"][case] is None]
    assert not (lost := [case for case in expected if case in found["lost"]]), f"lost: {lost}"
    assert found["resumed"] > 0, "the worker was killed after the replies"
    other = [case for case in expected if case not in found["exact"]]
    assert kit.on_cuda or not other, f"not exact: {other}"


async def _runs(
    coordinator: RunningServer,
    workers: list[RunningServer],
    place: Path,
    cases: dict[str, dict[str, Any]],
    found: dict[str, Any],
) -> tuple[dict[str, ChatAnswer], dict[str, ChatAnswer], dict[str, ChatAnswer | BaseException]]:
    """Send the requests twice to one worker, and once to the worker that is killed before the replies end."""
    async with httpx.AsyncClient(base_url=coordinator.address, timeout=200) as client:
        undisturbed = await all_answers(client, cases)
        again = await all_answers(client, cases)
        begun = [asyncio.Event() for _ in cases]
        requests = start_answers(client, cases, begun)
        await asyncio.gather(*(event.wait() for event in begun))
        announce(place, *(worker.address for worker in workers))
        await asyncio.to_thread(wait_routable, coordinator.address, 2)
        found["under_way_at_kill"] = sum(not task.done() for task in requests.values())
        await asyncio.to_thread(workers[0].process.kill)
        results = await asyncio.gather(*requests.values(), return_exceptions=True)
        return undisturbed, again, dict(zip(requests, results, strict=True))


def compared(answer: ChatAnswer | BaseException, undisturbed: ChatAnswer) -> dict[str, Any]:
    """Return whether a reply arrived, whether it is the undisturbed one, and where it first differs."""
    if isinstance(answer, BaseException):
        return {"lost": True, "exact": False, "reason": f"{type(answer).__name__}: {answer}"[:300]}
    place = differs_at(answer, undisturbed)
    common = len(undisturbed.logprobs) if place is None else place
    pairs = zip(answer.logprobs[:common], undisturbed.logprobs[:common], strict=True)
    return {
        "lost": answer.finishes.keys() != undisturbed.finishes.keys() or "error" in answer.finishes.values(),
        "exact": place is None and answer.text == undisturbed.text and answer.finishes == undisturbed.finishes,
        "tokens": sum(map(len, answer.token_ids.values())),
        "differs_at": place,
        "logprobs_apart": max((abs(new["logprob"] - old["logprob"]) for new, old in pairs), default=None),
        "json": _is_json(answer.text[0]) if undisturbed.text[0].startswith("[") else None,
    }


def differs_at(answer: ChatAnswer, undisturbed: ChatAnswer) -> int | None:
    """Return the position of the first id that differs, in any choice, or None."""
    places = []
    for index, expected in undisturbed.token_ids.items():
        ids = answer.token_ids.get(index, [])
        same = next((at for at, (new, old) in enumerate(zip(ids, expected, strict=False)) if new != old), None)
        if same is not None or len(ids) != len(expected):
            places.append(min(len(ids), len(expected)) if same is None else same)
    return min(places, default=None)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
