"""Prefill in one engine and decode in another on the same GPU, with NIXL and through a shared folder.

This program is the router that coordinators expect before them for that: it sends a prompt to the model `prefill`,
and to `decode` what came back. Ids must be those of one engine, and the decoding engine may not compute the prompt.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gpu.completions import full_completion, greedy
from gpu.kit import Kit
from gpu.models import KitModel
from gpu.parts import Parts
from gpu.servers import StartedServers, started_together
from gpu.step import Skipped
from tests.ports import free_ports

NAME = "kv_transfer"
LIMIT_S = 180

PREFILL, DECODE = "prefill", "decode"
_TOKENS = 32
_LINES = {"cuda": (3, 20, 60, 250), "cpu": (3, 20)}
"""Lengths of prompts, in lines of about 20 tokens."""
_REMOTE_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
_BLOCK = {"cuda": 16, "cpu": 128}
"""Tokens of a cache block."""
_NIXL = "NixlConnector"
_SIDE_CHANNEL_PORT = 5600
_TCP = {"UCX_TLS": "cuda_copy,tcp,self"}
"""NIXL's transports that work everywhere; by itself it shares the GPU's memory where it can."""
_NEAR_TIE = 0.3
"""Where two engines round differently, a token whose log-probability is as near to the best may take its place.

bfloat16 has logits of 16 to 32 in steps of 0.125, and each of the two may be rounded by one: 0.25, and a margin.
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two engines with a connector."""

    name: str
    config: Mapping[str, Any]
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    """Of each engine's metrics."""
    side_channel: int
    """The first of two ports at which NIXL's engines find each other."""

    @property
    def pulls(self) -> bool:
        """Whether the decoding engine fetches what the other one's response names."""
        return bool(self.config["kv_connector"] == _NIXL)

    def start(self, kit: Kit, role: str, number: int) -> Any:
        engine = [*kit.engine_arguments(share=0.2, eager=True), "--kv-transfer-config", json.dumps(self.config)]
        engine += ["--disable-hybrid-kv-cache-manager"]
        if kit.on_cuda:
            engine += ["--kv-cache-memory-bytes", str(2 * 2**30)]
        environment = {**kit.environment(number), **self.environment}
        # An engine whose port is taken never starts: so none of the range from which others get theirs.
        port = str(self.side_channel + number)
        environment |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": port}
        return kit.tokenwire_worker(
            KitModel(role, kit.model.folder),
            engine=engine,
            options=["--metrics-listen", f"127.0.0.1:{self.ports[role]}"],
            environment=environment,
            name=f"{self.name}-{role}",
            number=number,
        )

    def counters(self, role: str) -> dict[str, float]:
        """Return an engine's counters of tokens by source, and NIXL's of transfers."""
        text = httpx.get(f"http://127.0.0.1:{self.ports[role]}/metrics", timeout=30).text
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "vllm:prompt_tokens_by_source_total":
                    found[sample.labels["source"]] = sample.value
                elif sample.name.startswith("vllm:nixl_") and sample.name.endswith(("_sum", "_count", "_total")):
                    found[sample.name.removeprefix("vllm:")] = sample.value
        return found


def run(kit: Kit) -> dict[str, Any]:
    """Transfer prompts with each connector."""
    parts, pairs = Parts(kit.out), _pairs(kit)
    if "nixl" not in pairs:
        with parts.part("nixl"):
            raise Skipped("the package nixl is not installed")
    # All at once where there are cores for it.
    groups = [pairs] if kit.on_cuda else [{name: pair} for name, pair in pairs.items()]
    for group in groups:
        starts = {
            f"{pair.name}-{role}": partial(pair.start, kit, role, number)
            for pair in group.values()
            for number, role in enumerate((PREFILL, DECODE))
        }
        with started_together(starts, at_once=len(starts) if kit.on_cuda else 1) as servers:
            for name, pair in group.items():
                with parts.part(name) as found:
                    _transfers(kit, servers, pair, found)
    return {"parts": parts.results}


def _pairs(kit: Kit) -> dict[str, _Pair]:
    configs: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
    folder = {"shared_storage_path": str(kit.out / "cache" / "shared")}
    configs["folder"] = ({"kv_connector": "ExampleConnector", "kv_connector_extra_config": folder}, {})
    if find_spec("nixl"):
        nixl = {"kv_connector": _NIXL}
        configs["nixl"] = (nixl, {} if kit.on_cuda else _TCP)
        if kit.on_cuda:
            configs["nixl over tcp"] = (nixl, _TCP)
    pairs = {}
    for index, (name, (config, environment)) in enumerate(configs.items()):
        ports = dict(zip((PREFILL, DECODE), free_ports(2), strict=True))
        channel = _SIDE_CHANNEL_PORT + 2 * index
        pairs[name] = _Pair(name.replace(" ", "-"), {**config, "kv_role": "kv_both"}, environment, ports, channel)
    return pairs


def _transfers(kit: Kit, servers: StartedServers, pair: _Pair, found: dict[str, Any]) -> None:
    engines = [servers[f"{pair.name}-{role}"] for role in (PREFILL, DECODE)]
    found["ready_s"] = [engine.ready_s for engine in engines]
    options, log = ["--allow-kv-transfer-params"], f"coordinator-{pair.name}"
    rows = found["prompts"] = list[dict[str, Any]]()
    with kit.coordinator(engines, options=options, name=log) as coordinator:
        for lines in _LINES[kit.device]:
            rows.append({})
            _transfer(coordinator.address, pair, _prompt(pair.name, lines), rows[-1])
    found["decoding engine"] = pair.counters(DECODE)
    for row in rows:
        assert row["ids equal"] or row["first difference"]["near tie"], f"the ids differ: {row}"
        # Of a folder's prompts only whole blocks are taken.
        most = 1 if pair.pulls else 2 * _BLOCK[kit.device]
        if row["prompt tokens"] > most:
            assert row.get("external_kv_transfer"), f"the decoding engine was given nothing: {row}"
            assert row.get("local_compute", 0) <= most, f"the decoding engine computed the prompt: {row}"


def _transfer(url: str, pair: _Pair, prompt: str, row: dict[str, Any]) -> None:
    """Prefill a prompt, decode it elsewhere, and compare with one engine that does both."""
    started = time.monotonic()
    # The folder has every prompt after its first request, so that one must be the one to compare with.
    whole = {"kv_transfer_params": _REMOTE_DECODE} if pair.pulls else {}
    prefilled = full_completion(url, PREFILL, prompt, 1 if pair.pulls else _TOKENS, **whole)
    row["prefilling engine, s"] = round(time.monotonic() - started, 4)
    row["prompt tokens"] = prefilled["usage"]["prompt_tokens"]
    handed = {"kv_transfer_params": prefilled["kv_transfer_params"]} if pair.pulls else {}
    assert all(handed.values()), "the prefilling engine returned no kv_transfer_params"
    before = pair.counters(DECODE)
    transferred = greedy(url, DECODE, prompt, _TOKENS, **handed)
    after = pair.counters(DECODE)
    row |= {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    row["first token with transfer, s"] = transferred.first_s
    expected = prefilled["choices"][0]["token_ids"]
    if pair.pulls:
        alone = greedy(url, DECODE, prompt, _TOKENS)
        row["first token without, s"], expected = alone.first_s, alone.token_ids
    row["ids equal"] = transferred.token_ids == expected
    if not row["ids equal"]:
        row["first difference"] = _difference(url, prompt, transferred.token_ids, expected)


def _difference(url: str, prompt: str, ids: list[int], expected: list[int]) -> dict[str, Any]:
    """Return where ids begin to differ, and by how much the other token was less likely."""
    at = next(index for index, pair in enumerate(zip(ids, expected, strict=True)) if pair[0] != pair[1])
    shown = {"logprobs": 5, "return_tokens_as_token_ids": True, "cache_salt": f"difference at {at}"}
    response = full_completion(url, DECODE, prompt, at + 1, **shown)
    top = response["choices"][0]["logprobs"]["top_logprobs"][at]
    behind = top.get(f"token_id:{expected[at]}", 0.0) - top.get(f"token_id:{ids[at]}", -100.0)
    return {"at": at, "ids": [ids[at], expected[at]], "behind": behind, "near tie": is_near_tie(behind)}


def is_near_tie(behind: float) -> bool:
    """Return whether rounding alone can put a token that is this much less likely, or more, in another's place."""
    return abs(behind) < _NEAR_TIE


def _prompt(name: str, lines: int) -> str:
    return f"A report for {name} of {lines} days.\n" + "".join(
        f"Day {day}: the boat came back with {day * 7 % 31} fish and {day * 5 % 13} crabs.\n" for day in range(lines)
    )
