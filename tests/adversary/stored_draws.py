"""Draws attacks by seed on what a coordinator stores: responses, and sessions with all of their tokens.

A part are the requests of draws.py, which a coordinator with stores records.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.adversary import draws, fields, schemas
from tests.adversary.attack import Attack
from tests.adversary.values import MIB, OPEN_OBJECTS, Value, id_list, id_lists, long_text, small, value_of

STORES = ("--enable-responses-store", "--enable-trajectories")
"""Options of a coordinator that stores all there is."""
_CREATE = "/v1/responses"
_RESPONSE = f"{_CREATE}/{{response_id}}"
_SESSION = "/sessions/{session_id}"

NEW_SESSION: fields.Table = {
    **{name: fields.COMPLETION[name] for name in ("min_weight_version", "max_weight_lag")},
    "session_id": fields.COMPLETION["session_id"],
    "metadata": [value_of("60 KB", {"a": "x" * 60_000}), *OPEN_OBJECTS],
}
REWARD: fields.Table = {"value": small(1.5), "name": [value_of("128 characters", "x" * 128), long_text(MIB)]}

Target = tuple[str, str, fields.Table]
"""A method, a path with its query, and the fields that a body may have."""
_EXPORTS = [
    f"{_SESSION}/export?format={form}&by={by}" for form in ("jsonl", "arrow", "parquet") for by in ("path", "node")
]
ON_RESPONSES: Sequence[Target] = (
    ("GET", _RESPONSE, {}),
    ("GET", f"{_RESPONSE}?stream=true", {}),
    ("GET", f"{_RESPONSE}/input_items", {}),
    ("GET", f"{_RESPONSE}/input_items?limit=100&order=asc", {}),
    ("POST", f"{_RESPONSE}/cancel", {}),
    ("DELETE", _RESPONSE, {}),
)
ON_SESSIONS: Sequence[Target] = (
    ("GET", "/sessions?limit=1000", {}),
    ("GET", _SESSION, {}),
    ("GET", f"{_SESSION}/trajectory", {}),
    ("GET", f"{_SESSION}/traces", {}),
    *(("GET", path, {}) for path in _EXPORTS),
    ("GET", "/traces/{session_id}:x", {}),
    ("POST", "/sessions", NEW_SESSION),
    ("POST", f"{_SESSION}/rewards", REWARD),
    ("PUT", f"{_SESSION}/rewards", REWARD),
    ("POST", f"{_SESSION}/nodes/x/rewards", REWARD),
    ("PUT", f"{_SESSION}/nodes/x/rewards", REWARD),
    ("POST", "/admin/flush", {}),
    ("DELETE", _SESSION, {}),
)

_STORED_INPUTS = [
    *small("hi"),
    *(long_text(size) for size in (4_096, 20_000, MIB, 8 * MIB)),
    *(schemas.INPUTS[number] for number in (0, 1, 2, 5, 6)),
]
_REPLIES: Sequence[Mapping[str, Value]] = (
    {"max_output_tokens": small(4)[0]},
    {"max_output_tokens": small(100)[0], "include": small(["message.output_text.logprobs"])[0]},
)
_RECORDED: Sequence[tuple[str, Mapping[str, Value]]] = (
    ("/v1/completions", {"prompt": id_list(24_000), "max_tokens": small(4)[0]}),
    ("/v1/completions", {"prompt": id_list(24_000), "n": small(64)[0], "max_tokens": small(4)[0]}),
    ("/v1/completions", {"prompt": id_list(100), "n": small(64)[0], "max_tokens": small(100)[0]}),
    (
        "/v1/completions",
        {"prompt": id_list(100), "n": small(16)[0], "max_tokens": small(200)[0], "logprobs": small(20)[0]},
    ),
    ("/v1/completions", {"prompt": id_lists(2_000, 3), "max_tokens": small(4)[0]}),
    ("/v1/completions", {"prompt": id_lists(64, 300), "allowed_token_ids": fields.SAMPLING["allowed_token_ids"][0]}),
    ("/v1/completions", {"prompt": small("hi")[0], "vllm_xargs": value_of("4 MB", {"a": "x" * (4 * MIB)})}),
    *(("/v1/chat/completions", {"messages": chat, "max_tokens": small(4)[0]}) for chat in schemas.CHATS[:3]),
)
"""Requests that sessions have, each with much to store."""
_RECORDS = (
    *("/v1/completions", "/v1/chat/completions", "/v1/chat/completions/tokens", "/v1/responses", "/v1/messages"),
    *("/inference/v1/generate", "/generate", "/generate/", "/chat/"),
)
"""Routes whose requests are recorded."""


def draw_stored(seed: int) -> Attack:
    """Return the attack of a seed."""
    chance = random.Random(seed)
    kind: Callable[[int, random.Random], Attack] = chance.choice((_recorded_request, _on_responses, _on_session))
    return kind(seed, chance)


def _recorded_request(seed: int, chance: random.Random) -> Attack:
    """Return a drawn request, as one of a session."""
    attack = draws.draw_of(chance.choice(_RECORDS), chance)
    return replace(attack, name=f"in a session: {attack.name}", headers=_session(seed))


def _session(seed: int) -> Mapping[str, str]:
    return {"X-Session-Id": f"s{seed}"}


def _on_responses(seed: int, chance: random.Random) -> Attack:
    turns = chance.choice((1, 1, 3, 12))
    given = {"input": chance.choice(_STORED_INPUTS), **chance.choice(_REPLIES)}
    for name in ("background", "stream"):
        if chance.random() < 0.3:
            given[name] = small(True)[0]
    if not given["input"].is_small and chance.random() < 0.7:
        given["truncate_prompt_tokens"] = small(10)[0]
    before = tuple(_turn(seed, turn, given) for turn in range(turns))
    if chance.random() < 0.3:
        attack = _continuation(seed, turns, chance)
    else:
        method, path, _ = chance.choice(ON_RESPONSES)
        path = path.format(response_id=_id_of(seed, turns - 1))
        attack = Attack(f"{method} {path}", path, method=method)
    return _repeated(replace(attack, before=before), f"after {turns} of {_shown(given)}", chance)


def _shown(given: Mapping[str, Value]) -> str:
    return " x ".join(f"{name}={value.name}" for name, value in given.items())


def _id_of(seed: int, turn: int) -> str:
    return f"resp_a{seed}-{turn}"


def _turn(seed: int, turn: int, given: Mapping[str, Value]) -> Attack:
    """Return a request whose response is stored, and continues the one before unless they run in the background."""
    continues = turn > 0 and "background" not in given
    before = {"previous_response_id": small(_id_of(seed, turn - 1))[0]} if continues else {}
    return Attack("", _CREATE, {**given, **before}, headers={"X-Request-Id": f"a{seed}-{turn}"})


def _continuation(seed: int, turns: int, chance: random.Random) -> Attack:
    """Return a drawn request that continues the last response."""
    attack = draws.draw_of(chance.choice((_CREATE, f"{_CREATE}/compact")), chance)
    given = {**attack.fields, "previous_response_id": small(_id_of(seed, turns - 1))[0]}
    return replace(attack, fields=given)


def _on_session(seed: int, chance: random.Random) -> Attack:
    path, given = chance.choice(_RECORDED)
    requests = chance.choice((1, 4, 16))
    step = Attack("", path, given, headers=_session(seed))
    method, path, table = chance.choice(ON_SESSIONS)
    path = path.format(session_id=f"s{seed}")
    body = {name: chance.choice(values) for name, values in table.items() if name == "value" or chance.random() < 0.5}
    attack = Attack(f"{method} {path} {_shown(body)}", path, body, method=method, before=(step,) * requests)
    return _repeated(attack, f"after {requests} of {step.path} {_shown(given)}", chance)


def _repeated(attack: Attack, after: str, chance: random.Random) -> Attack:
    """Return an attack that comes several times at once, or only once."""
    copies = chance.choice((1, 1, 6, 30))
    at_once = f", {copies} at once" if copies > 1 else ""
    return replace(attack, name=f"{attack.name}{at_once}, {after}", copies=copies)
