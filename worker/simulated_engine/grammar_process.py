"""A process that writes replies under grammars: it masks a model's tokens by xgrammar, and draws among what is allowed.

A reply is a pure function of the grammar, the context and the key, so another engine writes the same one. Two things
let it end: the longer it is, the likelier is a token that closes something, and EOS where the grammar allows it.
It is started for the first request with a grammar: importing xgrammar takes seconds and 300 MB.
"""

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenwire.worker.simulated_engine.model import SimulatedModel, load_model
from tokenwire.worker.simulated_engine.schema_limits import find_ignored
from tokenwire.worker.simulated_engine.tokens import next_context, stable_hash

MAX_TOKENS = 4096
"""A reply that has not ended by then is an error, unless the request wants no more."""
_NICENESS = 10
_CLOSERS = ('"', "}", "]", ",", ")", ">", "'", ";", ".")
"""Texts that may close something, those before others that are likelier to."""
_THINKING_ENDS = "</think>"


class GrammarError(Exception):
    """A grammar, or a scripted reply under it, that cannot be served."""


class ReplyWriter:
    """Writes replies with one model's tokens."""

    def __init__(self, model: SimulatedModel, xgrammar: Any) -> None:
        self._xgrammar = xgrammar
        self._tokenizer = model.tokenizer()
        self._eos = model.eos_token_id
        self._size = model.max_token_id + 1
        ends = self._tokenizer.token_to_id(_THINKING_ENDS)
        self._thinking_ends = [] if ends is None else [ends]
        self._words = np.zeros(self._size, bool)
        blank = {token for token in model.words if not self._decode([token]).strip()}
        self._words[[token for token in model.words if token not in blank]] = True
        self._short = np.zeros(self._size, bool)
        self._short[[token for token in model.words if len(self._decode([token])) == 1]] = True
        vocabulary = {index: text for text, index in self._tokenizer.get_vocab(with_added_tokens=True).items()}
        is_byte_level = "ByteLevel" in json.dumps(json.loads(model.files["tokenizer.json"]).get("decoder"))
        kinds = xgrammar.VocabType
        info = xgrammar.TokenizerInfo(
            [vocabulary.get(index, "") for index in range(self._size)],
            kinds.BYTE_LEVEL if is_byte_level else kinds.BYTE_FALLBACK,
            vocab_size=self._size,
            stop_token_ids=[self._eos],
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=64 * 1024 * 1024)
        self._mask = xgrammar.allocate_token_bitmask(1, self._size)

    def replies(self, job: dict[str, Any]) -> list[list[int]]:
        """Return the ids of a request's replies, without EOS. Raises GrammarError."""
        try:
            grammar = self._compile(job["kind"], job["grammar"], job["compact"])
        except GrammarError:
            raise
        except Exception as error:
            raise GrammarError(f"cannot be compiled: {error}") from error
        if job["script"] is not None:
            self._check(grammar, job)
            return [job["script"]] * len(job["draws"])
        closers = [self._encode(text) for text in (_CLOSERS[0], *_ends_in(job), *_CLOSERS[1:])]
        return [self._write(grammar, job, closers, *draw) for draw in job["draws"]]

    def _compile(self, kind: str, grammar: str, compact: bool) -> Any:
        compiler = self._compiler
        if kind in ("json_schema", "json_object"):
            schema = grammar if kind == "json_schema" else '{"type": "object"}'
            if ignored := find_ignored(json.loads(schema)):
                raise GrammarError(f"has {ignored}, which a simulated engine cannot honour")
            return compiler.compile_json_schema(
                schema, any_whitespace=not compact, separators=(",", ":") if compact else None
            )
        if kind == "choice":
            return compiler.compile_grammar("root ::= " + " | ".join(map(json.dumps, json.loads(grammar))))
        if kind == "regex":
            return compiler.compile_regex(grammar)
        if kind == "grammar":
            return compiler.compile_grammar(grammar) if "::=" in grammar else compiler.compile_lark(grammar)
        tag = json.loads(grammar)
        if "structures" in tag:  # vLLM's older form
            item = self._xgrammar.StructuralTagItem
            items = [item(begin=e["begin"], schema=json.dumps(e["schema"]), end=e["end"]) for e in tag["structures"]]
            return compiler.compile_structural_tag(items, tag["triggers"])
        return compiler.compile_structural_tag(grammar)

    def _check(self, grammar: Any, job: dict[str, Any]) -> None:
        """Raise GrammarError for a scripted reply that breaks a grammar."""
        matcher = self._xgrammar.GrammarMatcher(grammar)
        ids = job["script"][: job["max_tokens"]]
        start = 0
        if job["reasons"] and _THINKING_ENDS in (text := self._decode(ids)):
            reasoning = text[: text.rindex(_THINKING_ENDS) + len(_THINKING_ENDS)]
            while len(self._decode(ids[:start])) < len(reasoning):
                start += 1
        for place in range(start, len(ids)):
            if not matcher.accept_token(ids[place]):
                written = self._decode(ids[start:place])[-40:]
                raise GrammarError(f"does not allow the scripted reply, after {written!r}")
        if len(ids) < job["max_tokens"] and not matcher.is_completed():
            raise GrammarError("does not allow the scripted reply: it ends too early")

    def _write(self, grammar: Any, job: dict[str, Any], closers: list[list[int]], context: int, key: int) -> list[int]:
        matcher = self._xgrammar.GrammarMatcher(grammar)
        # Without its mark, parsers take all of a reply for reasoning.
        ids: list[int] = [*self._thinking_ends] if job["reasons"] else []
        for token in ids:
            context = next_context(context, token)
        while len(ids) < job["max_tokens"]:
            if len(ids) == MAX_TOKENS:
                raise GrammarError(f"has no reply that ends within {MAX_TOKENS} tokens; a lower max_tokens cuts it")
            chance = random.Random(stable_hash(context, key))  # noqa: S311
            closes = chance.random() < (len(ids) + 8) / (len(ids) + 48)
            allowed, is_complete = self._allowed(matcher, job)
            plain = allowed & self._words
            if is_complete and (not plain.any() or (closes and len(ids) >= job["min_tokens"])):
                break
            # Blanks are allowed nearly everywhere, and lead nowhere.
            short = plain & self._short
            # Among single characters, the one that an expression waits for is not rare.
            choices = np.flatnonzero(short if closes and short.any() else plain if plain.any() else allowed)
            if not len(choices):
                raise GrammarError("allows no further token" if ids else "allows no output at all")
            drawn = [int(choices[int(chance.random() * len(choices))])]
            likely = [closer for closer in closers if allowed[closer[0]] and chance.random() < 0.75] if closes else []
            new = next(each for each in (*likely, drawn) if _accept(matcher, each))
            ids += new
            for token in new:
                context = next_context(context, token)
        return ids[: job["max_tokens"]]

    def _allowed(self, matcher: Any, job: dict[str, Any]) -> tuple[Any, bool]:
        """Return which tokens other than EOS are allowed next, and whether the reply may end here."""
        if matcher.is_terminated():
            return np.zeros(self._size, bool), True
        matcher.fill_next_token_bitmask(self._mask)
        bits = np.unpackbits(self._mask.numpy().view(np.uint8), bitorder="little")
        allowed = bits[: self._size].astype(bool)
        is_complete = bool(allowed[self._eos])
        allowed[self._eos] = False
        if job["permitted"]:
            permitted = np.zeros(self._size, bool)
            permitted[job["permitted"]] = True
            allowed &= permitted
        allowed[job["banned"]] = False
        return allowed, is_complete

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text


def _accept(matcher: Any, ids: list[int]) -> bool:
    """Accept all of these tokens, or none."""
    for place, token in enumerate(ids):
        if not matcher.accept_token(token):
            if place:
                matcher.rollback(place)
            return False
    return True


def _ends_in(job: dict[str, Any]) -> list[str]:
    """Return the texts with which the tags of a structural tag end."""
    return list(dict.fromkeys(_ends_of(json.loads(job["grammar"])))) if job["kind"] == "structural_tag" else []


def _ends_of(tag: Any) -> Iterator[str]:
    if isinstance(tag, dict):
        ends = tag.get("end")
        yield from (each for each in (ends if isinstance(ends, list) else [ends]) if isinstance(each, str) and each)
    for each in tag.values() if isinstance(tag, dict) else tag if isinstance(tag, list) else ():
        yield from _ends_of(each)


def main() -> None:
    """Read where the model is, then requests, one a line; answer each line with the replies or what is wrong."""
    os.nice(_NICENESS)
    import xgrammar  # only here: the worker does without

    model_dir = json.loads(sys.stdin.readline())
    writer = ReplyWriter(load_model(model_dir and Path(model_dir), None), xgrammar)
    _answer({})
    for line in sys.stdin:
        try:
            _answer({"replies": writer.replies(json.loads(line))})
        except GrammarError as error:
            _answer({"error": str(error)})


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
