"""Whether a grammar allows anything at all: vLLM finds out while it generates, and calls it a fault of its own."""

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import xgrammar
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.request import get_structured_output_key

from tokenwire.errors import InvalidRequest

_BYTES = [bytes([value]) for value in range(256)]
_SOURCE_POSITION = re.compile(r"\[[\d:]+\] \S+:\d+: ")
"""Where in its own code xgrammar was when it found an error."""


class GrammarCheck:
    """Compiles grammars as the engine's core will, and looks for a token that could come first."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._config = vllm_config
        self._tokenizer = tokenizer
        self._compiler = ""
        # Its own threads, as few as the core has: a grammar may take many seconds, and others wait for common ones.
        self._threads = ThreadPoolExecutor(((os.cpu_count() or 1) + 1) // 2, thread_name_prefix="grammar")

    async def refuse_stuck(self, params: Any) -> None:
        """Refuse SamplingParams that vLLM has verified and whose grammar allows nothing. Raises InvalidRequest."""
        if params.structured_outputs is not None:
            await self._aside(self._refuse_stuck, params.structured_outputs)

    async def verify(self, params: Any) -> None:
        """Let vLLM verify a grammar, and refuse one that allows nothing. Raises InvalidRequest and what vLLM raises."""
        if params.structured_outputs is not None:
            verified = params.clone()
            await self._aside(self._verify, verified)
            await self.refuse_stuck(verified)

    async def _aside(self, check: Callable[[Any], None], subject: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, check, subject)

    def _verify(self, params: Any) -> None:
        config = self._config
        arguments = (config.model_config, config.speculative_config, config.structured_outputs_config)
        params.verify(*arguments, self._tokenizer)

    def _refuse_stuck(self, asked: Any) -> None:
        # The core compiles everything by what it took for its first grammar, whatever vLLM verified this one for.
        compiler = self._compiler or asked._backend
        kind, grammar = get_structured_output_key(asked)
        fault = ""
        if compiler == "xgrammar":
            # Among bytes it takes a fraction of the time. What fails there may name tokens that only the model has.
            fault = _fault(self._bytes, kind, grammar) and _fault(self._xgrammar, kind, grammar)
        elif compiler == "guidance":
            fault = _fault(self._guidance, kind, grammar)
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
    """vLLM's own use of xgrammar, for a model whose tokens are single bytes and an end."""

    def __post_init__(self) -> None:
        self.disable_any_whitespace = self.vllm_config.structured_outputs_config.disable_any_whitespace
        self.num_speculative_tokens = 0
        tokens = xgrammar.TokenizerInfo(
            [*_BYTES, b"</s>"], xgrammar.VocabType.RAW, vocab_size=self.vocab_size, stop_token_ids=[len(_BYTES)]
        )
        self.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_limit_bytes=16 * 1024 * 1024)


def _fault(backend: StructuredOutputBackend, kind: Any, grammar: str) -> str:
    """Tell what is wrong with a grammar, nothing if it allows a first token."""
    try:
        compiled = backend.compile_grammar(kind, grammar)
    except Exception as error:
        # Quoted, for it may repeat what the client wrote, which logs leave out.
        return f"cannot be compiled: {_SOURCE_POSITION.sub('', str(error)).strip()!r}"
    return "" if _allows_something(backend, compiled) else "allows no output at all, not even an empty one"


def _allows_something(backend: StructuredOutputBackend, grammar: StructuredOutputGrammar) -> bool:
    mask = backend.allocate_token_bitmask(1)
    grammar.fill_bitmask(mask, 0)
    # llguidance writes a mask that allows the end where it knows of nothing else.
    matcher = getattr(grammar, "ll_matcher", None)
    return bool(mask.any()) and not (matcher is not None and matcher.get_error())
