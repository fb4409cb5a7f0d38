"""One run as data: a fleet, its requests, and its faults and operations. Generated from a seed, or read from JSON."""

import json
import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.simulation.sampling import draw_parameters
from tests.simulation.tenants import draw_key, draw_keys
from tests.simulation.variety import vary_fleet, vary_request

FAULTS = (
    *("kill", "power_cut", "chase_resumed", "terminate", "drain", "freeze", "hang", "crash", "slow_engine"),
    *("cut", "cut_resumed", "stall", "partition", "slow_link", "late_operation", "cut_client", "flap_discovery"),
    *("freeze_coordinator", "kill_coordinator", "terminate_coordinator", "lie", "isolate_suspect"),
    "step_clock",
)
"""Events that break something for a while."""
OPERATIONS = (
    *("pause_abort", "pause_keep", "pause_wait", "sleep", "abort", "abort_resumed", "abort_lost", "reset_cache"),
    *("load_weights", "load_missing_weights", "label_weights", "label_meanwhile", "load_adapter", "unload_adapter"),
)
"""Events that an operator or trainer causes."""
ROLLOUTS = ("roll_out", "roll_back")
"""A worker is replaced by one with the fleet's other weights, or by one with its own again."""
UPGRADES = ("roll_workers", "roll_coordinators")
"""Rolling restarts under another minor version of the protocol."""
STORE_EVENTS = ("store_dies", "store_fails", "store_stalls", "store_evicts", "store_cut", "turn_elsewhere")
"""Events of the store that coordinators share."""
_AFTER_LOSS = frozenset({"chase_resumed", "cut_resumed", "abort_resumed"})
_LOSSES = ("kill", "power_cut", "cut", "crash")
"""Without one of these, the events above find nothing."""
_CHANGES = ("pause_abort", "pause_wait", "load_weights")
"""Without one of these, nothing is late."""

_SUSPECTED_S = 30.0
"""How much longer it takes until a coordinator gives up to find out whether two workers died."""
_ONLY_UPGRADES = 0.05
"""Share of runs in which nothing happens but rolling restarts, which must lose nothing."""


@dataclass(frozen=True, slots=True)
class ScriptedEvent:
    """Something that happens at a time."""

    at: float
    """Virtual seconds from the beginning."""
    kind: str
    """"request", or one of FAULTS, OPERATIONS, ROLLOUTS, UPGRADES and STORE_EVENTS."""
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that a run is made of. Events can be left out one by one."""

    seed: int
    config: dict[str, Any]
    events: tuple[ScriptedEvent, ...] = ()

    def to_json(self) -> str:
        """Return the script with an event in each line."""
        events = ",\n  ".join(json.dumps(list(asdict(event).values())) for event in self.events)
        return f'{{"seed": {self.seed}, "config": {json.dumps(self.config)}, "events": [\n  {events}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> "Script":
        """Read what `to_json` returned."""
        data = json.loads(text)
        return cls(data["seed"], data["config"], tuple(ScriptedEvent(*event) for event in data["events"]))


def generate_script(seed: int) -> Script:
    """Draw a script. Few kinds of events at a time reach deeper than all of them together (swarm testing)."""
    rng = random.Random(f"script {seed}")
    config = _config(rng)
    if config["crowd_s"] is not None:  # a small fleet, so that tenants queue
        config["workers"], config["engine"]["max_num_seqs"] = rng.choice([2, 3]), rng.choice([1, 2])
        config["keys"] = draw_keys(rng, [2, 3], [None])
    config["behind_s"] = random.Random(f"behind {seed}").choice([0.0, 0.0, 0.01, 0.05])
    config["adapter_s"] = random.Random(f"adapter {seed}").choice([0.0, 0.0, 0.3, 1.5])
    config["preempt_after_s"] = random.Random(f"preempt {seed}").choice([0.0, 0.1, 0.5, 2.0])
    vary_fleet(variety := random.Random(f"variety {seed}"), config)
    kinds = rng.sample([*FAULTS, *OPERATIONS, *UPGRADES, *STORE_EVENTS], rng.randrange(1, 7))
    if rng.random() < _ONLY_UPGRADES:
        kinds = [rng.choice(UPGRADES)]
    if config["coordinators"] > 1 and (rng.random() < 0.2 or set(kinds) & set(STORE_EVENTS)):
        config["store"] = _store(rng, config)
        kinds.append("turn_elsewhere")
    events = _with_latecomer(random.Random(f"latecomer {seed}"), config, _requests(rng, config))
    if config["adapters"]:
        kinds += rng.sample(["load_adapter", "unload_adapter"], rng.randrange(3))
        events += [_early_load(rng, config, name) for name in config["adapters"]]
    if _AFTER_LOSS.intersection(kinds):
        kinds.append(rng.choice(_LOSSES))
    if "late_operation" in kinds:
        kinds.append(rng.choice(_CHANGES))
    if "step_clock" in kinds:
        kinds.append(rng.choice(_CHANGES))
    if "label_meanwhile" in kinds:
        kinds += ["load_weights", rng.choice(["late_operation", *_LOSSES])]
    for _ in range(rng.choice([0, 3, 8, 15, 25])):
        events.append(ScriptedEvent(_time(rng, config), rng.choice(kinds), _arguments(rng, config)))
    sampling = random.Random(f"sampling {seed}")
    events += _rollout(random.Random(f"rollout {seed}"), config, kinds)
    for event in events:
        if event.kind == "request":
            vary_request(variety, config, event.args)
            draw_parameters(sampling, event.args)
    if "isolate_suspect" in kinds:
        config["seconds"] += _SUSPECTED_S
    return Script(seed, config, tuple(sorted(events, key=lambda event: event.at)))


def _config(rng: random.Random) -> dict[str, Any]:
    pick = rng.choice
    return {
        "coordinators": pick([1, 2, 3, 3]),
        "workers": pick([2, 3, 5, 8]),
        "seconds": round(rng.uniform(4, 12), 3),
        "attempts": pick([1, 3, 3]),
        "latency_s": pick([0.0002, 0.002, 0.02]),
        "window": pick([400, 4000, 1 << 22]),
        "lateness_s": pick([0.0, 0.005, 0.05]),
        "intake_s": pick([0.0, 0.0, 0.03]),
        "keys": draw_keys(rng, [0, 0, 2, 3], [None, None, None, 4, 12]),
        "adapters": pick([[], [], ["red"], ["red", "blue"]]),
        "crowd_s": pick([None, None, 0.5]),
        "queue_timeout_s": pick([5.0, 60.0]),
        "max_queue": pick([None, None, 4]),
        "history_ttl_s": pick([3600.0, 3600.0, 5.0]),
        "request_timeout_s": pick([None, None, None, 8.0]),
        "engine": {
            "step_ms": pick([10, 20, 40]),
            "max_num_seqs": pick([1, 2, 4, 16]),
            "kv_events": rng.random() < 0.3,
            "kv_tokens": pick([None, 640]),
            "max_model_len": 512,
            "prefill_tokens_per_s": pick([0, 300.0, 2000.0, 20000.0]),
            "eos_rate": pick([0.0, 0.02]),
            "max_queue": pick([0, 0, 1]),
            "seeds": pick(["positional", "positional", "generator"]),
        },
        "signed": rng.random() < 0.5,
        "skew_s": pick([0.0, 0.0, 3.0, 60.0, 300.0]),
    }


def _rollout(rng: random.Random, config: dict[str, Any], kinds: list[str]) -> list[ScriptedEvent]:
    """Give some workers of a part of the fleets other weights, and return what happens to workers because of that."""
    config["other_weights"] = rng.choice([[], [], [0], [0, 1]])
    if not config["other_weights"] or set(kinds) <= set(UPGRADES):
        return []
    times = rng.choice([1, 2, 4])
    happens = [rng.choice([*ROLLOUTS, *_LOSSES]) for _ in range(times)]
    return [ScriptedEvent(_time(rng, config), kind, _arguments(rng, config)) for kind in happens]


def _store(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    every = range(config["coordinators"])
    return {
        "sharers": sorted(rng.sample(every, rng.randrange(2, len(every) + 1))),
        "latency_s": rng.choice([0.0005, 0.005, 0.05]),
    }


def _early_load(rng: random.Random, config: dict[str, Any], name: str) -> ScriptedEvent:
    args = _arguments(rng, config) | {"adapter": name}
    return ScriptedEvent(round(rng.uniform(0.3, 1.5), 3), "load_adapter", args)


def _time(rng: random.Random, config: dict[str, Any]) -> float:
    return round(rng.uniform(0.5, config["seconds"]), 3)


def _requests(rng: random.Random, config: dict[str, Any]) -> list[ScriptedEvent]:
    prefixes = [_text(rng, 10, 150) for _ in range(3)]
    crowd_s, begin = config["crowd_s"], _time(rng, config)
    requests = [
        ScriptedEvent(
            _time(rng, config) if crowd_s is None else round(begin + rng.uniform(0, crowd_s), 3),
            "request",
            _request(rng, config, number, prefixes),
        )
        for number in range(rng.randrange(10 if crowd_s is None else 30, 45))
    ]
    return requests + [_follow_up(rng, config, event) for event in requests if _may_be_continued(rng, event)]


def _with_latecomer(rng: random.Random, config: dict[str, Any], requests: list[ScriptedEvent]) -> list[ScriptedEvent]:
    """Let one tenant of a part of the crowds come when others have been served for a while, at the same coordinator."""
    if config["crowd_s"] is None or rng.random() < 0.6:
        return requests
    config["max_queue"] = 64
    for key in config["keys"]:
        key.update(max_concurrent=None, models=None, min_priority=None)
    tenant, later_s = rng.choice(config["keys"])["tenant"], rng.uniform(0.3, 2.0)
    own = {number for number, key in enumerate(config["keys"]) if key["tenant"] == tenant}
    return [
        replace(
            event,
            at=round(event.at + later_s * (event.args["key"] in own), 3),
            args=event.args | {"priority": 0, "model": None, "coordinator": 0},
        )
        for event in requests
    ]


def _may_be_continued(rng: random.Random, event: ScriptedEvent) -> bool:
    return event.args["route"] == "chat" and event.args["n"] == 1 and rng.random() < 0.2


def _follow_up(rng: random.Random, config: dict[str, Any], event: ScriptedEvent) -> ScriptedEvent:
    """Return the next turn of a chat: sent when the first one has ended, by a coordinator of its own."""
    args = dict(event.args, id=f"{event.args['id']}b", follows=event.args["id"], prompt=_text(rng, 1, 20))
    if rng.random() < 0.2:
        args["key"], args["model"] = draw_key(rng, config["keys"]), rng.choice([None, *config["adapters"]])
    args["coordinator"] = rng.choice([event.args["coordinator"], rng.randrange(config["coordinators"])])
    return ScriptedEvent(round(event.at + rng.uniform(0.5, 3.0), 3), "request", args)


def _request(rng: random.Random, config: dict[str, Any], number: int, prefixes: list[str]) -> dict[str, Any]:
    pick = rng.choice
    sampling = pick(["greedy", "greedy", "seeded", "seeded", "plain", "penalty"])
    prompt = pick(prefixes) if rng.random() < 0.5 else ""
    return {
        "coordinator": rng.randrange(config["coordinators"]),
        "id": f"r{number}",
        "route": pick(["chat", "completions"]),
        "stream": rng.random() < 0.8,
        "prompt": prompt + _text(rng, 1, 40),
        "max_tokens": pick([1, 2, 5, 20, 60, 120]),
        "sampling": sampling,
        "seed": rng.randrange(1000),
        "n": 1 if sampling == "greedy" else pick([1, 1, 2, 3]),
        "logprobs": pick([None, None, None, 2]),
        "stop": pick([None, None, [_text(rng, 1, 3) for _ in range(3)]]),
        "priority": pick([0, 0, 0, 1]),
        "model": rng.choice([None, *config["adapters"]]),
        "key": draw_key(rng, config["keys"]),
        "leave_s": pick([None, None, None, round(rng.uniform(0, 3), 3)]),
        "read_delay_s": pick([0.0, 0.0, 0.0, 0.2]),
        "follows": None,
    }


def _text(rng: random.Random, least: int, most: int) -> str:
    return "".join(chr(rng.randrange(65, 91)) for _ in range(rng.randrange(least, most)))


def _arguments(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "worker": rng.randrange(config["workers"]),
        "coordinator": rng.randrange(config["coordinators"]),
        "length": round(rng.expovariate(1 / rng.choice([0.05, 1.0, 4.0, 10.0])), 3),
        "draw": round(rng.random(), 3),
        "adapter": rng.choice(config["adapters"] or ["red"]),
        "subset": [each for each in range(config["workers"]) if rng.random() < 0.6],
    }
