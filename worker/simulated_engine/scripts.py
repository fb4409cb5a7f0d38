"""What the sequences of a request generate instead of drawn ids: an operator's reply, or one under a grammar."""

from collections.abc import Sequence
from typing import Any

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.grammars import Grammars
from tokenwire.worker.simulated_engine.replies import ScriptedReplies
from tokenwire.worker.simulated_engine.requests import RequestPlanner
from tokenwire.worker.simulated_engine.tokens import Script, hash_context

_MOST = 4096
"""Tokens of a repeated script that are held against a grammar: none of these replies ends by itself."""


class Scripts:
    """Finds the scripts of requests, which takes longer than to plan them."""

    def __init__(self, planner: RequestPlanner, replies: ScriptedReplies | None, grammars: Grammars | None) -> None:
        """`grammars`: None if the engine cannot honour any."""
        self._planner = planner
        self._replies = replies
        self._grammars = grammars

    def may_have(self, submit: pb.Submit) -> bool:
        """Return whether there may be scripts for a request."""
        return self._replies is not None or submit.sampling_params.HasField("structured_outputs")

    async def find(self, submit: pb.Submit, sequences: Sequence[EngineSequence], weights: str) -> list[Script]:
        """Return a script for each sequence, none if there are no scripts. Raises InvalidRequest or Overloaded."""
        params, prompt = submit.sampling_params, list(prompt_ids(submit))
        script = self._planner.script(params, prompt)
        if self._replies is not None and not params.trace_decode_token_ids:
            script = await self._replies.find(prompt) or script
        if not params.HasField("structured_outputs"):
            return [script] * len(sequences) if script else []
        if self._grammars is None:
            raise InvalidRequest(
                "This simulated engine cannot honour structured_outputs: xgrammar is not installed where it runs.",
                param="structured_outputs",
            )
        job = self._job(params, prompt, script)
        job["reasons"] = submit.HasField("reasoning_ended") and not submit.reasoning_ended
        context, _ = hash_context(prompt)
        keys = [self._planner.key(params, weights, submit.lora.id, sequence.index) for sequence in sequences]
        job["draws"] = [(context, key) for key in keys]
        replies = await self._grammars.replies(params.structured_outputs, job, submit.tenant)
        return [script or Script(tuple(ids), self._planner.model.eos_token_id) for ids in replies]

    def _job(self, params: pb.SamplingParams, prompt: list[int], script: Script | None) -> dict[str, Any]:
        remaining = max(1, self._planner.model.max_model_len - len(prompt))
        limit = min(params.max_tokens, remaining) if params.HasField("max_tokens") else remaining
        forced = [token for token, bias in params.logit_bias.items() if bias >= 100]
        return {
            "script": None if script is None else _once(script, min(limit, _MOST), self._planner.model.eos_token_id),
            "min_tokens": params.min_tokens,
            "max_tokens": limit,
            "permitted": forced or list(params.allowed_token_ids),
            "banned": [token for token, bias in params.logit_bias.items() if bias <= -100],
        }

    async def close(self) -> None:
        """Free what is kept."""
        if self._grammars is not None:
            await self._grammars.close()


def _once(script: Script, limit: int, eos_token_id: int | None) -> list[int]:
    """Return the ids of a script up to EOS."""
    ids = script.part(0, limit)
    return ids[: ids.index(eos_token_id)] if eos_token_id in ids else ids
