"""The bodies of requests for one submit's sequences: what they have in common is written once, and shared as bytes."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.fleet.transport.vllm_http.request import body_of
from tokenwire.protocol.seeds import sequence_seed
from tokenwire.v1 import inference_pb2 as pb

_IDS_AT_ONCE = 8192
"""Ids of a prompt that are written without a turn for others: a millisecond's."""
_MOST_AT_ONCE = 1024
"""Requests of one submit: each has a connection, and engines run no more sequences than this by default."""


class SharedBody:
    """Writes the requests for a submit's sequences."""

    def __init__(self, submit: pb.Submit, model: str) -> None:
        self._submit = submit
        self._model = model
        self._shared: list[bytes] = []
        self._is_written = False
        self._writing = asyncio.Lock()
        self.places = asyncio.Semaphore(_MOST_AT_ONCE)
        """For requests of the submit: each has one while it lasts."""

    async def of(self, request_id: str, index: int) -> Sequence[bytes]:
        """Return the request for a sequence, but for the brace at its end. Raises InvalidRequest."""
        async with self._writing:
            if not self._is_written:
                await self._write()
        params, seed = self._submit.sampling_params, ""
        if params.HasField("seed"):
            seed = f'"seed": {sequence_seed(params.seed, index)}, '
        own = f'{{"request_id": {json.dumps(request_id)}, "sampling_params": {{{seed}'
        return [own.encode(), *self._shared]

    async def _write(self) -> None:
        """Write what follows the seed; whoever is next begins anew if this is cancelled."""
        body: dict[str, Any] = body_of(self._submit, self._model)
        sampling = json.dumps(body.pop("sampling_params"))
        self._shared = [f'{sampling[1:]}, {json.dumps(body)[1:-1]}, "token_ids": ['.encode()]
        ids = self._submit.prompt_token_ids
        for start in range(0, len(ids), _IDS_AT_ONCE):
            comma = ", " if start else ""
            self._shared.append(f"{comma}{json.dumps(list(ids[start : start + _IDS_AT_ONCE]))[1:-1]}".encode())
            await asyncio.sleep(0)
        self._shared.append(b"]")
        self._is_written = True
