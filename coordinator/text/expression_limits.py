"""What an expression of a tokenizer that a worker brings may be: matching it must take little of any text.

An engine that backtracks may try as many ways as there are to divide a run of characters among repetitions. Few of
them may follow each other, and none may be of a group, so that what is left shows in runs of single characters.
"""

import math
import re
import time
from collections.abc import Iterator
from functools import lru_cache

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from tokenwire.errors import InvalidRequest

_MOST_CHARS = 8192
_MOST_REPEATED = 3
"""Unbounded repetitions that follow each other: real expressions have two, and one in a condition behind them."""
_MOST_WAYS = 1024
"""Of all bounded repetitions that follow each other, together."""
_BOUNDED = 32
"""Repetitions up to this number are bounded; others may as well have no bound."""
_MOST_CHOICES = 64
"""Groups that choose between alternatives, each of which may be tried with each of the others."""
_RUNS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Lengths of runs that it is tried on, the last one that of a prompt that is tokenized between other work."""
_BOTH_WAYS = 512
"""What is behind shorter runs is tried in both orders."""
_LONGEST_S = 0.4
"""Of CPU time for the longest run, for shorter ones less: most real expressions take two milliseconds."""

_TRIES = 3
"""A collection of garbage may fall into one."""
_ASCII = 0x7F

_ESCAPE = re.compile(r"\\(?:[pPx]\{[^}]*\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x\{?([0-9a-fA-F]{1,6})\}?)")
_BACKREFERENCE = re.compile(r"\\[1-9kg]")
_OPENING = re.compile(r"\((?:\?(?:[=!>:]|<[=!]|[imsx-]+:?|<\w+>|#))?")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d*)(,?)(\d*)\})[?+]?")
_REPEATED_ATOM = re.compile(r"\((?:\?:)?.(?:\{\d+\})?\)(?=[*+{])")
"""A group of one character, some number of times: repeated, it is a repetition of that character."""
_SAMPLES = (
    "aAzZé1²Ⅷ_-.,!?()[]{}'\"#%&*/\\$+<=^`|~€§ \t\n\r\x00\x85\xa0\u2028\u3000あ中한ا\u0301\u0903\u20dd\u200d\ue000ǅʰ😀"
)
"""A character of each kind that expressions tell apart."""


@lru_cache(maxsize=256)
def check_expression(pattern: str) -> None:
    """Check an expression, and try it on runs of characters. Raises InvalidRequest."""
    if len(pattern) > _MOST_CHARS:
        raise _refusal(pattern, f"has {len(pattern):,} characters: at most {_MOST_CHARS:,} are allowed")
    if _BACKREFERENCE.search(pattern):
        raise _refusal(pattern, "refers to what it has matched")
    skeleton = _REPEATED_ATOM.sub("a", _without_classes(_ESCAPE.sub("a", pattern)))
    if re.search(r"\)(?:[*+]|\{)", skeleton):
        raise _refusal(pattern, "repeats a group")
    if skeleton.count("(") > _MOST_CHOICES:
        raise _refusal(pattern, f"has more than {_MOST_CHOICES} groups")
    for part in _alternatives(skeleton):
        _check_repetitions(pattern, part)
    _try_runs(pattern)


def _without_classes(pattern: str) -> str:
    """Return an expression with a letter for each class of characters, of nested ones for the outermost."""
    kept, depth = list[str](), 0
    for character in pattern:
        if character == "[":
            depth += 1
            kept += "a" * (depth == 1)
        elif character == "]" and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)


def _alternatives(skeleton: str) -> Iterator[str]:
    """Yield the alternatives of an expression, each with all that is in its groups: more than may follow each other."""
    depth, part = 0, ""
    for character in _OPENING.sub("(", skeleton):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth <= 0:
            yield part
            part = ""
        else:
            part += character
    yield part


def _check_repetitions(pattern: str, part: str) -> None:
    unbounded, ways = 0, []
    for match in _QUANTIFIER.finditer(part):
        least, comma, most = match.groups()
        if least is None:
            high, low = (1 if match[0][0] == "?" else _BOUNDED + 1), 0
        else:
            low = int(least or 0)
            high = int(most) if most else _BOUNDED + 1 if comma else low
        if high > _BOUNDED and high != low:
            unbounded += 1
        else:
            ways.append(high - low + 1)
    if unbounded > _MOST_REPEATED:
        raise _refusal(pattern, f"has {unbounded} repetitions in a row: at most {_MOST_REPEATED} are allowed")
    if math.prod(ways) > _MOST_WAYS:
        raise _refusal(pattern, f"has {math.prod(ways):,} ways to repeat: at most {_MOST_WAYS:,} are allowed")


def _characters_of(pattern: str) -> list[str]:
    """Return a character of each kind, and those at the bounds of an expression's own."""
    codes = {ord(each) for each in pattern} | {int(one or other, 16) for one, other in _CODE.findall(pattern)}
    near = {code + step for code in codes for step in ((-1, 0, 1) if code > _ASCII else (0,))}
    return sorted({*_SAMPLES, *(chr(code) for code in near if code < 0x110000 and not 0xD800 <= code < 0xE000)})


def _try_runs(pattern: str) -> None:
    """Try runs of all characters, longer and longer ones, so that none takes very long. Raises InvalidRequest.

    What is behind a run decides whether it may match. All characters are: some expressions need one to try at all.
    """
    splits, characters = Split(Regex(pattern), "isolated"), _characters_of(pattern)
    behind = "".join(characters)
    for length in _RUNS:
        for character in characters:
            for rest in (behind, behind[::-1]) if length <= _BOTH_WAYS else (behind,):
                text, most_s, took_s = character * length + rest, _LONGEST_S * length / _RUNS[-1], math.inf
                for _ in range(_TRIES):
                    took_s = min(took_s, _seconds(splits, pattern, text))
                    if took_s <= most_s:
                        break
                else:
                    raise _refusal(pattern, f"takes {took_s:.2f} s for {length} times {character!r}")


def _seconds(splits: Split, pattern: str, text: str) -> float:
    began_at = time.thread_time()  # no other thread's: a real expression is not refused on a busy machine
    try:
        splits.pre_tokenize_str(text)
    except BaseException as error:  # one that takes too long is a panic of the library, no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise _refusal(pattern, f"fails on {len(text)} characters: {error}") from error
    return time.thread_time() - began_at


def _refusal(pattern: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"The tokenizer's expression {pattern[:100]!r} {why}, so it is not used.")
