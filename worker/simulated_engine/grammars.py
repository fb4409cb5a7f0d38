"""Replies under grammars, written in a process of their own: a grammar may take long to compile, and steps go on."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from tokenwire.errors import EngineFailed, InvalidRequest
from tokenwire.process.fair_turns import FairTurns
from tokenwire.process.line_process import LineProcess
from tokenwire.v1 import inference_pb2 as pb

_LIMIT_S = 20.0
"""Time to compile a grammar and to write its replies."""
_START_S = 120.0
_MOST_WAITING = 32
_TOO_MANY = "Too many grammars of this client wait to be compiled."
_PARAMS = {"json_schema": "json"}
"""Names of constraints in requests, where they differ from the protocol's."""


def can_use_grammars() -> bool:
    """Return whether xgrammar is installed, which is part of vLLM."""
    return importlib.util.find_spec("xgrammar") is not None


class Grammars:
    """Writes replies under grammars, those of one request at a time; tenants take turns."""

    def __init__(self, model_dir: Path | None, limit_s: float = _LIMIT_S) -> None:
        self._model_dir = model_dir
        self._limit_s = limit_s
        self._process = LineProcess((sys.executable, "-P", "-m", "tokenwire.worker.simulated_engine.grammar_process"))
        self._turns = FairTurns(1, 1, _MOST_WAITING, _TOO_MANY)

    async def replies(self, outputs: pb.StructuredOutputs, job: dict[str, Any], tenant: str) -> list[list[int]]:
        """Return the ids of a request's replies, without EOS.

        Raises InvalidRequest for a grammar without any that ends in time, or that does not allow a scripted one.
        """
        kind = outputs.WhichOneof("constraint") or ""
        grammar = json.dumps(list(outputs.choice.values)) if kind == "choice" else getattr(outputs, kind, "")
        async with self._turns.turn(tenant):
            answer = await self._ask(
                {"kind": kind, "grammar": grammar, "compact": outputs.disable_any_whitespace, **job}
            )
        if "replies" in answer:
            replies: list[list[int]] = answer["replies"]
            return replies
        param = f"structured_outputs.{_PARAMS.get(kind, kind)}"
        raise InvalidRequest(f"The value of {param} {answer['error']}.", param=param)

    async def close(self) -> None:
        """Kill the process, if there is one."""
        await self._process.close()

    async def _ask(self, job: dict[str, Any]) -> Any:
        if not self._process.is_running:
            await self._start()
        answer = await self._process.ask(json.dumps(job), self._limit_s)
        if answer:
            return json.loads(answer)
        return {"error": f"takes longer than {self._limit_s:g} s to be compiled and to be written by"}

    async def _start(self) -> None:
        await self._process.start()
        if not await self._process.ask(json.dumps(self._model_dir and str(self._model_dir)), _START_S):
            raise EngineFailed("The process that writes replies under grammars did not start; its log says why.")
