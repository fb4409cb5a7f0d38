"""Makes a failing script small: leaves events out, then prefers plainer values, as long as it fails in the same way."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation.run import run_script
from tests.simulation.script import Script, ScriptedEvent

Fails = Callable[[Script], bool]

_PLAIN: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("lateness_s",), 0.0),
    (("latency_s",), 0.0002),
    (("window",), 1 << 22),
    (("intake_s",), 0.0),
    (("adapter_s",), 0.0),
    (("workers",), 2),
    (("workers",), 3),
    (("coordinators",), 1),
    (("coordinators",), 2),
    (("keys",), []),
    (("store",), None),
    (("store", "latency_s"), 0.0005),
    (("adapters",), []),
    (("other_weights",), []),
    (("batch_variant",), []),
    (("generators",), []),
    (("resume",), "auto"),
    (("request_timeout_s",), None),
    (("skew_s",), 0.0),
    (("max_queue",), None),
    (("engine", "eos_rate"), 0.0),
    (("engine", "kv_tokens"), None),
    (("engine", "kv_events"), False),
    (("engine", "max_queue"), 0),
    (("engine", "max_num_seqs"), 16),
    (("engine", "step_ms"), 10),
    (("engine", "seeds"), "positional"),
)
"""Values that make a fleet simpler, by their places in the configuration."""
_PLAIN_REQUEST: dict[str, Any] = {
    "n": 1,
    "logprobs": None,
    "stop": None,
    "leave_s": None,
    "read_delay_s": 0.0,
    "priority": 0,
    "model": None,
    "route": "completions",
    "ids": True,
    "min_tokens": 0,
    "stop_token_ids": None,
    "ignore_eos": False,
    "include_stop": False,
    "prompt_logprobs": None,
    "parameters": {},
}


def story(violation: str) -> str:
    """Return a violation without its figures: two scripts with the same story fail in the same way."""
    return re.sub(r"\[.*?\]|'.*?'|[\d.]+", "#", violation.partition(" ")[2])


def shrink(script: Script, runs: int = 400) -> Script:
    """Return the smallest script found within so many runs with one of the same stories."""
    stories = {story(violation) for violation in run_script(script).violations}
    left = runs

    def fails(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return left > 0 and any(story(violation) in stories for violation in run_script(candidate).violations)

    script = _without_events(script, fails)
    script = _with_plain_fleet(script, fails)
    script = _with_plain_requests(script, fails)
    return _without_events(script, fails)


def _without_events(script: Script, fails: Fails) -> Script:
    """Leave out as many events as possible (delta debugging, Zeller 1999)."""
    events, parts = script.events, 2
    while len(events) >= 2:
        size = max(1, len(events) // parts)
        for start in range(0, len(events), size):
            kept = events[:start] + events[start + size :]
            if fails(replace(script, events=kept)):
                events, parts = kept, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(events), 2 * parts)
    return replace(script, events=events)


def _with_plain_fleet(script: Script, fails: Fails) -> Script:
    for path, value in _PLAIN:
        config = json.loads(json.dumps(script.config))
        inner = config.get(path[0]) if len(path) == 2 else config
        if inner and inner.get(path[-1]) != value:
            inner[path[-1]] = value
            _fold_store(config)
            for name in ("batch_variant", "generators"):
                config[name] = [each for each in config.get(name, ()) if each < config["workers"]]
            candidate = replace(script, config=config, events=tuple(_folded(event, config) for event in script.events))
            if fails(candidate):
                script = candidate
    return script


def _fold_store(config: dict[str, Any]) -> None:
    """Let only coordinators that there are share the store, or nobody."""
    if config.get("store"):
        sharers = [each for each in config["store"]["sharers"] if each < config["coordinators"]]
        config["store"] = dict(config["store"], sharers=sharers) if len(sharers) > 1 else None


def _folded(event: ScriptedEvent, config: dict[str, Any]) -> ScriptedEvent:
    """Return an event that names only hosts and tenants that there are."""
    args = dict(event.args)
    for name in ("worker", "coordinator"):
        if name in args:
            args[name] %= config[f"{name}s"]
    if args.get("key") is not None:
        args["key"] = min(args["key"], len(config["keys"]) - 1) if config["keys"] else None
    if "subset" in args:
        args["subset"] = [each for each in args["subset"] if each < config["workers"]]
    return replace(event, args=args)


def _with_plain_requests(script: Script, fails: Fails) -> Script:
    for index, event in enumerate(script.events):
        for args in _plainer(event):
            candidate = replace(
                script,
                events=(*script.events[:index], replace(event, args=args), *script.events[index + 1 :]),
            )
            if fails(candidate):
                script, event = candidate, replace(event, args=args)
    return script


def _plainer(event: ScriptedEvent) -> Sequence[dict[str, Any]]:
    if event.kind != "request":
        return ()
    args = event.args
    found = [{**args, "prompt": args["prompt"][:1]}] if len(args["prompt"]) > 1 else []
    found += [{**args, "max_tokens": least} for least in (2, 5, 20) if least < args["max_tokens"]]
    return found + [{**args, name: value} for name, value in _PLAIN_REQUEST.items() if args.get(name, value) != value]
