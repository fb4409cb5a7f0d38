"""Rejects grammars that allow no output, or that take too long to compile, before the engine core has them.

vLLM finds out about the first while generating, and reports an internal error; the others keep all grammars waiting.
"""

import asyncio
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import vllm.envs
import xgrammar
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key
from vllm.v1.structured_output.utils import grammar_is_likely_lark

from tokenwire.errors import InvalidRequest
from tokenwire.process.fair_turns import FairTurns
from tokenwire.worker.vllm_engine.grammar_process import GrammarProcess

ResultT = TypeVar("ResultT")

_BYTES = [bytes([value]) for value in range(256)]
_COSTLY = re.compile(r'"(?:min|max)Length"|"pattern(?:Properties)?"|"format"|\{\s*\d')
"""Repetitions of characters: each that differs takes an engine a second or more of CPU time."""
_LONG_CHARS = 16 * 1024
"""A longer schema may take long without any."""
_SHORT_CHARS = 64
"""A shorter expression or grammar takes a few seconds at most, without counted repetitions."""
_LITERALS = re.compile(r'root ::= (?:"(?:[^"\\]|\\.)*"(?: \| )?)+')
"""What vLLM makes of choices."""
_FEW_LITERALS_CHARS = 16 * 1024
"""Of choices that compile in a second: ten thousand of 22 letters take 18 s."""
_DEFAULT_LIMIT_S = 5
"""Of a vLLM without its own."""
_REMEMBERED = 1024
_TOO_MANY = "Too many grammars of this client wait to be compiled."
_MOST_WAITING = 32
"""Grammars of a tenant that wait for their trial: each has a place in the engine's batch."""
_SOURCE_POSITION = re.compile(r"\[[\d:]+\] \S+:\d+: ")
"""Location in xgrammar's code that precedes its error messages."""


class GrammarCheck:
    """Compiles grammars as the engine core will, and checks that they allow a first token."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._config = vllm_config
        self._tokenizer = tokenizer
        self._compiler = ""
        # Its own threads, about as few as the core's: a grammar may take seconds, and would block a shared executor.
        threads = max(2, ((os.cpu_count() or 1) + 1) // 2)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="grammar")
        self._thread_turns = FairTurns(threads, threads // 2)
        self._process = GrammarProcess(self._tokenizer_info)
        self._process_turns = FairTurns(1, 1, _MOST_WAITING, _TOO_MANY)
        self._trials: OrderedDict[bytes, asyncio.Task[bool]] = OrderedDict()
        """Whether a tenant's grammar compiles in time, by digest, the last used one last."""

    async def reject(self, params: Any, tenant: str = "") -> None:
        """Raise InvalidRequest if the grammar of SamplingParams, which vLLM has verified, cannot be used.

        It takes too long to compile, or allows no output. Raises Overloaded if too many of the tenant wait.
        """
        outputs = params.structured_outputs
        if outputs is not None:
            if (self._compiler or outputs._backend) == "xgrammar":
                await self._reject_slow(tenant, *get_structured_output_key(outputs))
            await self.in_thread(tenant, lambda: self._reject_unsatisfiable(outputs))

    async def close(self) -> None:
        """Stop compiling."""
        for trial in self._trials.values():
            trial.cancel()
        await asyncio.gather(*self._trials.values(), return_exceptions=True)
        await self._process.close()

    async def _reject_slow(self, tenant: str, kind: Any, grammar: str) -> None:
        """Raise InvalidRequest if a grammar that may take long does not compile within vLLM's time for expressions."""
        limit_s = getattr(vllm.envs, "VLLM_REGEX_COMPILATION_TIMEOUT_S", _DEFAULT_LIMIT_S)
        if limit_s <= 0 or not _may_take_long(kind.name, grammar):
            return
        digest = blake2b(f"{tenant}\0{kind.name}\0{grammar}".encode()).digest()
        trial = self._trials.get(digest)
        if trial is None:
            trial = self._trials[digest] = asyncio.create_task(self._try(tenant, kind.name, grammar, limit_s))
            if len(self._trials) > _REMEMBERED:
                self._trials.popitem(last=False)
        self._trials.move_to_end(digest)
        try:
            in_time = await asyncio.shield(trial)
        except BaseException:
            if trial.done():
                self._trials.pop(digest, None)  # the next one tries again
            raise
        if not in_time:
            param = f"structured_outputs.{kind.name.lower()}"
            raise InvalidRequest(
                f"The value of {param} takes longer than {limit_s} s to compile: it has too many different lengths or "
                "repetitions, or is too large. VLLM_REGEX_COMPILATION_TIMEOUT_S of the worker raises the limit.",
                param=param,
            )

    async def _try(self, tenant: str, kind: str, grammar: str, limit_s: float) -> bool:
        is_lark = kind == "GRAMMAR" and grammar_is_likely_lark(grammar)
        async with self._process_turns.turn(tenant):
            return await self._process.compiles_within(limit_s, "LARK" if is_lark else kind, grammar)

    async def verify(self, params: Any, tenant: str = "") -> None:
        """Verify a grammar with vLLM, and reject one that allows no output. Raises InvalidRequest or vLLM's errors."""
        if params.structured_outputs is not None:
            verified = params.clone()
            await self.in_thread(tenant, lambda: self._verify(verified))
            await self.reject(verified, tenant)

    async def in_thread(self, tenant: str, check: Callable[[], ResultT]) -> ResultT:
        """Run a tenant's check in a thread: one may take long, and the event loop carries all tokens."""
        async with self._thread_turns.turn(tenant):
            return await asyncio.get_running_loop().run_in_executor(self._threads, check)

    def _verify(self, params: Any) -> None:
        config = self._config
        arguments = (config.model_config, config.speculative_config, config.structured_outputs_config)
        params.verify(*arguments, self._tokenizer)

    def _reject_unsatisfiable(self, outputs: Any) -> None:
        # The core compiles all grammars with the backend of its first one, whatever vLLM verified this one for.
        compiler = self._compiler or outputs._backend
        kind, grammar = get_structured_output_key(outputs)
        fault = ""
        if compiler == "xgrammar":
            # With bytes it takes a fraction of the time. A grammar that fails there may refer to the model's tokens.
            fault = _find_fault(self._bytes, kind, grammar) and _find_fault(self._xgrammar, kind, grammar)
        elif compiler == "guidance":
            fault = _find_fault(self._guidance, kind, grammar)
        if fault:
            param = f"structured_outputs.{kind.name.lower()}"
            raise InvalidRequest(f"The value of {param} {fault}.", param=param)
        self._compiler = compiler

    def _tokenizer_info(self) -> str:
        info = xgrammar.TokenizerInfo.from_huggingface(self._tokenizer, vocab_size=self._vocab_size)
        return str(info.serialize_json())

    @cached_property
    def _bytes(self) -> StructuredOutputBackend:
        return _ByteBackend(self._config, tokenizer=None, vocab_size=len(_BYTES) + 1)

    @cached_property
    def _xgrammar(self) -> StructuredOutputBackend:
        return XgrammarBackend(self._config, self._tokenizer, self._vocab_size)

    @cached_property
    def _guidance(self) -> StructuredOutputBackend:
        return GuidanceBackend(self._config, self._tokenizer, self._vocab_size)

    @property
    def _vocab_size(self) -> int:
        return int(self._config.model_config.get_vocab_size())


def _may_take_long(kind: str, grammar: str) -> bool:
    """Return whether only a trial shows that a grammar compiles in time."""
    if kind == "JSON":
        # Escapes may hide the names of keywords.
        schema = json.dumps(json.loads(grammar)) if "\\" in grammar else grammar
        return len(schema) > _LONG_CHARS or bool(_COSTLY.search(schema))
    if kind == "GRAMMAR" and len(grammar) <= _FEW_LITERALS_CHARS and _LITERALS.fullmatch(grammar):
        return False
    return kind != "JSON_OBJECT" and (len(grammar) > _SHORT_CHARS or bool(_COSTLY.search(grammar)))


class _ByteBackend(XgrammarBackend):  # type: ignore[misc]  # vLLM has no types
    """vLLM's xgrammar backend for a model whose tokens are single bytes and EOS."""

    def __post_init__(self) -> None:
        self.disable_any_whitespace = self.vllm_config.structured_outputs_config.disable_any_whitespace
        self.num_speculative_tokens = 0
        tokens = xgrammar.TokenizerInfo(
            [*_BYTES, b"</s>"], xgrammar.VocabType.RAW, vocab_size=self.vocab_size, stop_token_ids=[len(_BYTES)]
        )
        self.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_limit_bytes=16 * 1024 * 1024)
        self.full_vocab_compiler = self.compiler  # since vLLM 0.33, for tokens that only some grammars may use


def _find_fault(backend: StructuredOutputBackend, kind: Any, grammar: str) -> str:
    """Return what is wrong with a grammar, "" if it allows a first token."""
    try:
        compiled = backend.compile_grammar(kind, grammar)
    except Exception as error:
        # Quoted, because it may repeat the client's text, which logs redact.
        return f"cannot be compiled: {_SOURCE_POSITION.sub('', str(error)).strip()!r}"
    return "" if _allows_something(backend, compiled) else "allows no output at all, not even an empty one"


def _allows_something(backend: StructuredOutputBackend, grammar: StructuredOutputGrammar) -> bool:
    mask = backend.allocate_token_bitmask(1)
    grammar.fill_bitmask(mask, 0)
    # llguidance returns a mask that allows EOS if there is nothing else.
    matcher = getattr(grammar, "ll_matcher", None)
    return bool(mask.any()) and not (matcher is not None and matcher.get_error())
