"""Rejects grammars that allow no output: vLLM finds out while generating, and reports an internal error."""

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, TypeVar

import xgrammar
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key

from tokenwire.errors import InvalidRequest

ResultT = TypeVar("ResultT")

_BYTES = [bytes([value]) for value in range(256)]
_SOURCE_POSITION = re.compile(r"\[[\d:]+\] \S+:\d+: ")
"""Location in xgrammar's code that precedes its error messages."""


class GrammarCheck:
    """Compiles grammars as the engine core will, and checks that they allow a first token."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._config = vllm_config
        self._tokenizer = tokenizer
        self._compiler = ""
        # Its own threads, as few as the core's: a grammar may take many seconds, and would block a shared executor.
        self._threads = ThreadPoolExecutor(((os.cpu_count() or 1) + 1) // 2, thread_name_prefix="grammar")

    async def reject_unsatisfiable(self, params: Any) -> None:
        """Raise InvalidRequest if the grammar of SamplingParams, which vLLM has verified, allows no output."""
        if params.structured_outputs is not None:
            await self.in_thread(self._reject_unsatisfiable, params.structured_outputs)

    async def verify(self, params: Any) -> None:
        """Verify a grammar with vLLM, and reject one that allows no output. Raises InvalidRequest or vLLM's errors."""
        if params.structured_outputs is not None:
            verified = params.clone()
            await self.in_thread(self._verify, verified)
            await self.reject_unsatisfiable(verified)

    async def in_thread(self, check: Callable[..., ResultT], *arguments: Any, **named: Any) -> ResultT:
        """Run a check in a thread: one may take long, and the event loop carries all tokens."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(check, *arguments, **named))

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


class _ByteBackend(XgrammarBackend):  # type: ignore[misc]  # vLLM has no types
    """vLLM's xgrammar backend for a model whose tokens are single bytes and EOS."""

    def __post_init__(self) -> None:
        self.disable_any_whitespace = self.vllm_config.structured_outputs_config.disable_any_whitespace
        self.num_speculative_tokens = 0
        tokens = xgrammar.TokenizerInfo(
            [*_BYTES, b"</s>"], xgrammar.VocabType.RAW, vocab_size=self.vocab_size, stop_token_ids=[len(_BYTES)]
        )
        self.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_limit_bytes=16 * 1024 * 1024)


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
