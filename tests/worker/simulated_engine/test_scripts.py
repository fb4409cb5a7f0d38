"""Only requests for which there may be a script wait for one."""

from typing import Any

import pytest

from tests.worker.simulated_engine.simulation import EOS, PROMPT
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.grammars import Grammars
from tokenwire.worker.simulated_engine.model import load_model
from tokenwire.worker.simulated_engine.replies import ScriptedReplies
from tokenwire.worker.simulated_engine.reply_rules import ReplyRule
from tokenwire.worker.simulated_engine.requests import RequestPlanner
from tokenwire.worker.simulated_engine.scripts import Scripts
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.simulated_engine.tokens import Script

MODEL = load_model(None, None)
PLANNER = RequestPlanner(SimulationSettings(), MODEL)
SEQUENCES = [EngineSequence(FrameBuffer(), index, "request", index) for index in range(2)]


class FixedGrammars(Grammars):
    """Writes the same reply for each sequence, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(None)
        self.job: dict[str, Any] = {}

    async def replies(self, outputs: pb.StructuredOutputs, job: dict[str, Any], tenant: str) -> list[list[int]]:
        self.job = job
        return [[index] for index, _ in enumerate(job["draws"])]


def asked(**params: Any) -> pb.Submit:
    """Return a request with these parameters."""
    return pb.Submit(prompt_token_ids=PROMPT, sampling_params=pb.SamplingParams(**params))


async def test_scripts_are_looked_for_where_there_may_be_some() -> None:
    """With rules for all requests, without only for those with a grammar."""
    replies = ScriptedReplies([ReplyRule("", "Yes.")], MODEL)
    grammatical = asked(structured_outputs=pb.StructuredOutputs(regex="a"))
    without = Scripts(PLANNER, None, None)
    assert (without.may_have(asked()), without.may_have(grammatical)) == (False, True)
    ruled = Scripts(PLANNER, replies, None)
    assert ruled.may_have(asked())
    assert await ruled.find(asked(), SEQUENCES, "") == [Script(tuple(b"Yes."), EOS)] * 2
    assert await ruled.find(asked(trace_decode_token_ids=[5]), SEQUENCES, "") == [Script((5,))] * 2
    with pytest.raises(InvalidRequest, match="xgrammar is not installed"):
        await ruled.find(grammatical, SEQUENCES, "")


async def test_a_grammar_gets_what_bounds_its_replies() -> None:
    """Each sequence has a key of its own; a script is held against the grammar up to its EOS."""
    grammars = FixedGrammars()
    params: dict[str, Any] = {"max_tokens": 9, "min_tokens": 2, "seed": 1, "logit_bias": {5: -100.0, 6: 1.0}}
    submit = asked(structured_outputs=pb.StructuredOutputs(regex="a"), **params)
    found = await Scripts(PLANNER, None, grammars).find(submit, SEQUENCES, "")
    assert found == [Script((0,), EOS), Script((1,), EOS)]
    (context, key), (same, other) = grammars.job.pop("draws")
    assert (context == same, key == other) == (True, False)
    expected = {"script": None, "min_tokens": 2, "max_tokens": 9, "permitted": [], "banned": [5], "reasons": False}
    assert grammars.job == expected
    scripted = Scripts(RequestPlanner(SimulationSettings(script=(7, EOS)), MODEL), None, grammars)
    assert await scripted.find(submit, SEQUENCES, "") == [Script((7, EOS))] * 2
    assert grammars.job["script"] == [7]
