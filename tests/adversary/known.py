"""Causes of violations that are known and not mended yet; each is in the list until it is. Other tests avoid them."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.adversary.draws import Attack
from tests.adversary.values import MIB, Value

_PROMPTS = ("prompt", "prompts", "messages", "input_ids", "text", "sequences")
_LISTS = ("logit_bias", "allowed_token_ids", "bad_words", "stop_token_ids", "vllm_xargs", "extra_args")
_LOGPROBS = ("logprobs", "top_logprobs", "prompt_logprobs", "top_logprobs_num", "sequences")


@dataclass(frozen=True)
class KnownCause:
    """What makes some attacks violate."""

    name: str
    figure: str
    """What was measured."""
    rows: tuple[str, ...]
    """Named attacks that violate by it."""
    has: Callable[[Attack], bool]
    """Whether an attack may violate by it."""


def _count(attack: Attack, *names: str) -> int:
    """Return how many of something its fields have, by which the names of their values begin."""
    return max([_number(value.name.partition(" ")[0]) for value in _given(attack, *names)], default=1)


def _number(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else 1


def _given(attack: Attack, *names: str) -> list[Value]:
    return [value for name, value in attack.fields.items() if name.rpartition(".")[2] in names]


def _large_bodies(attack: Attack) -> bool:
    if attack.copies == 1:
        return False
    size = sum(len(value.json_text()) for value in attack.fields.values() if not value.is_small)
    return attack.copies * size > 8 * MIB


def _many_prompts(attack: Attack) -> bool:
    lists = [re.match("([0-9,]+) x ([0-9,]+) ids", value.name) for value in _given(attack, *_PROMPTS)]
    ids = sum(_number(each[1]) * _number(each[2]) for each in lists if each is not None)
    return ids > 500_000 or (_count(attack, *_PROMPTS) > 8 and bool(_given(attack, *_LISTS)))


def _many_sequences(attack: Attack) -> bool:
    return _count(attack, "n") > 200


def _many_logprobs(attack: Attack) -> bool:
    return (
        bool(_given(attack, *_LOGPROBS)) and _count(attack, *_PROMPTS, "token_ids", "tokens") * _count(attack, "n") > 3
    )


def _many_ids(attack: Attack) -> bool:
    return _count(attack, "tokens", "token_ids", "prompt", "input_ids", "required_prefix_token_ids") >= 500_000


def _long_echo(attack: Attack) -> bool:
    return bool(_given(attack, "echo")) and _count(attack, "n") > 16


KNOWN = (
    KnownCause("all bodies in flight", "1,157 MB", ("unfinished",), _large_bodies),
    KnownCause(
        "parameters and ids, once a prompt",
        "8 MB of arguments for 200 prompts: over 2 GB",
        ("allowed", "arguments", "biases", "bad words"),
        _many_prompts,
    ),
    KnownCause("a prompt, once a sequence, when its worker is lost", "10.6 s, 2,217 MB", ("n",), _many_sequences),
    KnownCause("log-probabilities of long prompts", "3.9 s, 479 MB", ("trl",), _many_logprobs),
    KnownCause("an echo, once a choice and in one frame", "0.64 s", ("echoed text, streamed",), _long_echo),
    KnownCause("ids as Python's numbers", "284 MB", ("detokenize",), _many_ids),
    KnownCause("long texts in several threads", "574 MB", ("truncate, six",), _large_bodies),
)
