"""A process that compiles grammars on trial: one that takes too long is found before the engine core has it.

xgrammar cannot be interrupted, and in the engine core a grammar that takes minutes keeps all others waiting. This
process can be killed. It is started for the first grammar that needs it: importing xgrammar takes seconds and 250 MB.
Its time is CPU time, because it leaves the CPUs to the engine.
"""

import asyncio
import contextlib
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tokenwire.errors import EngineFailed
from tokenwire.process.line_process import LineProcess

_ANSWER = b"done\n"
_THREADS = min(8, os.cpu_count() or 1)
"""Those of the engine core's compiler, as far as there are CPUs for them."""
_NICENESS = 10
_PATIENCE = 3
"""How many times longer than on idle CPUs it may take."""


class GrammarProcess:
    """Compiles one grammar at a time: who calls it waits for the answer before it calls again."""

    def __init__(self, tokenizer_info: Callable[[], str], command: Sequence[str] = ()) -> None:
        """`tokenizer_info` returns xgrammar's, serialized; it may take long. `command` replaces the process's own."""
        self._tokenizer_info = tokenizer_info
        self._process = LineProcess(command or (sys.executable, "-P", "-m", __name__))

    async def compiles_within(self, seconds: float, kind: str, grammar: str) -> bool:
        """Return whether a grammar is compiled, or found wrong, in so many seconds of idle CPUs.

        Raises EngineFailed if there is no process.
        """
        if not self._process.is_running:
            await self._start()
        return await self._done(json.dumps([kind, grammar, _THREADS * seconds]), _PATIENCE * seconds)

    async def close(self) -> None:
        """Kill the process, if there is one."""
        await self._process.close()

    async def _start(self) -> None:
        info = await asyncio.to_thread(self._tokenizer_info)
        await self._process.start()
        if not await self._done(info):
            raise EngineFailed("The process that compiles grammars on trial did not start; its log says why.")

    async def _done(self, line: str, limit_s: float | None = None) -> bool:
        """Return whether the answer to a line is that it is done; after any other one, nothing it says is reliable."""
        if await self._process.ask(line, limit_s) == _ANSWER:
            return True
        await self.close()
        return False


def main() -> None:
    """Read xgrammar's tokenizer, then grammars with their CPU time, one a line; answer each line when it is done."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import xgrammar  # only here: the worker's process has its own

    info = xgrammar.TokenizerInfo.deserialize_json(sys.stdin.readline())
    compiler = xgrammar.GrammarCompiler(info, max_threads=_THREADS, cache_enabled=False)
    _answer()
    for line in sys.stdin:
        kind, grammar, cpu_s = json.loads(line)
        # Beyond it the system ends this process.
        limit = math.ceil(time.process_time() + cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        with contextlib.suppress(Exception):  # the engine's own error describes it
            _compile(compiler, xgrammar.StructuralTagItem, kind, grammar)
        _answer()


def _compile(compiler: Any, item: Any, kind: str, grammar: str) -> None:
    """Compile a grammar as vLLM does."""
    tag = json.loads(grammar) if kind == "STRUCTURAL_TAG" else {}
    if "structures" in tag:  # vLLM's older form
        items = [item(begin=e["begin"], schema=json.dumps(e["schema"]), end=e["end"]) for e in tag["structures"]]
        compiler.compile_structural_tag(items, tag["triggers"])
        return
    methods = {"JSON": "json_schema"}
    getattr(compiler, "compile_" + methods.get(kind, kind.lower()))(grammar)


def _answer() -> None:
    sys.stdout.buffer.write(_ANSWER)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
