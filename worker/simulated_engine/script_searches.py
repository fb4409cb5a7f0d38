"""Searches for the scripts of requests, of which a request waits for its own until all of its sequences are aborted.

The process that writes replies under grammars takes seconds to start, and others may wait for what was asked of it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.scripts import Scripts
from tokenwire.worker.simulated_engine.tokens import Script


@dataclass(eq=False, slots=True)
class _Search:
    count: int
    aborted: list[EngineSequence] = field(default_factory=list)
    abandoned: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class ScriptSearches:
    """All that are under way."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self._searches: dict[EngineSequence, _Search] = {}
        self._tasks: set[asyncio.Task[list[Script]]] = set()
        """Also those that nobody waits for any longer."""

    @property
    def open(self) -> list[EngineSequence]:
        """The sequences whose scripts are looked for."""
        return list(self._searches)

    def may_have(self, submit: pb.Submit) -> bool:
        """Return whether there may be scripts for a request."""
        return self._scripts.may_have(submit)

    async def find(
        self, submit: pb.Submit, sequences: Sequence[EngineSequence], weights: str
    ) -> tuple[list[Script], list[EngineSequence]]:
        """Return the scripts of a request's sequences, and those that were aborted meanwhile; if all were, no script.

        Raises InvalidRequest or Overloaded.
        """
        search = _Search(len(sequences))
        self._searches.update(dict.fromkeys(sequences, search))
        finding = asyncio.create_task(self._scripts.find(submit, sequences, weights))
        self._tasks.add(finding)
        finding.add_done_callback(self._end)
        try:
            ends: list[asyncio.Future[Any]] = [finding, search.abandoned]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for sequence in sequences:
                del self._searches[sequence]
        return finding.result() if finding.done() else [], search.aborted

    def abort(self, sequences: Sequence[EngineSequence]) -> None:
        """Abort those of the sequences whose scripts are looked for."""
        for sequence in sequences:
            search = self._searches.get(sequence)
            if search is not None and sequence not in search.aborted:
                search.aborted.append(sequence)
                if len(search.aborted) == search.count:
                    search.abandoned.set_result(None)

    async def close(self) -> None:
        """End all, and free what is kept."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._scripts.close()

    def _end(self, task: "asyncio.Task[list[Script]]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # if nobody waits for it, it is of no interest
