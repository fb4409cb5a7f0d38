"""What was asked of requests and came of it: policies, engines that are not batch-invariant, parameters and routes."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.simulation.choice_reader import ChoiceReader
from tests.simulation.client import SimulatedClient
from tests.simulation.single_run import SEEDED, asks_for_ids, prefers_error
from tests.simulation.variety import LONG_REPLY

_POLICIES = ("auto", "exact", "plausible")
_HALF_LONG = LONG_REPLY // 2
VARIETIES = (
    *(f"policy {policy}: a reply went on" for policy in _POLICIES),
    *("policy auto: a reply went on plausibly", "policy plausible: a reply went on plausibly"),
    *(
        "a reply without ids went on",
        "a reply went on though its replay differed",
        *("a reply whose replay differed failed", "some engines with generators: a seeded reply went on"),
    ),
    *("unseeded reply with a penalty went on", "exact where tokens depend on the batch: a reply went on"),
    *("stopped after min_tokens", "ended by a stop id", "stop string in the text", "end of the model ignored"),
    *("ended by newer weights", "within its lag: of several weights"),
    *("prompt scored", "prompt scored after a loss", "long reply", "long reply went on"),
    *("route generate: completed", "route generate: without text", "route generate: a reply went on"),
)
"""All that have a name."""


def varieties_of(client: SimulatedClient, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what happened to a request that was drawn for it, each as often as to its choices."""
    spec = client.spec
    if "a second run of the request differs" in client.error.get("message", ""):
        yield "a reply whose replay differed failed"
    if client.prompt_scores:
        yield "prompt scored"
        if len(client.placed) > spec["n"]:
            yield "prompt scored after a loss"
    for reader in client.readers:
        yield from _of_choice(reader, spec)
        if spec.get("max_weight_lag") is not None:
            if reader.finish == "abort":
                yield "ended by newer weights"
            if len(reader.spans or ()) > 1:
                yield "within its lag: of several weights"
        if reader.oracle.moved:
            yield from _of_moved(reader, spec, config)


def _of_choice(reader: ChoiceReader, spec: Mapping[str, Any]) -> Iterator[str]:
    stopped_by, count = reader.oracle.visible_text()[1], len(reader.oracle.token_ids)
    if reader.finish == "stop":
        if reader.rules.min_tokens:
            yield "stopped after min_tokens"
        if stopped_by is None and reader.rules.stop_ids.intersection(reader.oracle.token_ids[-1:]):
            yield "ended by a stop id"
        if stopped_by is not None and reader.rules.shows_stop:
            yield "stop string in the text"
    if spec.get("ignore_eos") and reader.finish == "length":
        yield "end of the model ignored"
    if count > _HALF_LONG:
        yield "long reply"
    if spec["route"] == "generate" and reader.finish is not None:
        yield "route generate: completed" if spec["has_text"] else "route generate: without text"


def _of_moved(reader: ChoiceReader, spec: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    policy = config.get("resume", "auto")
    yield f"policy {policy}: a reply went on"
    if spec["sampling"] != "plain":
        if not reader.oracle.is_of_one_run():
            yield f"policy {policy}: a reply went on plausibly"
        if reader.oracle.diverged:
            yield "a reply went on though its replay differed"
    if not asks_for_ids(spec):
        yield "a reply without ids went on"
    if spec["sampling"] == "unseeded penalty":
        yield "unseeded reply with a penalty went on"
    if prefers_error(spec, config) and config.get("batch_variant") and spec["sampling"] != "plain":
        yield "exact where tokens depend on the batch: a reply went on"
    if config.get("generators") and spec["sampling"] in SEEDED:
        yield "some engines with generators: a seeded reply went on"
    if len(reader.oracle.token_ids) > _HALF_LONG:
        yield "long reply went on"
    if spec["route"] == "generate":
        yield "route generate: a reply went on"
