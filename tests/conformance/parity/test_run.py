"""How answers are judged: what may be chance is requested again."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.conformance.parity.canned import error, stream
from tests.conformance.parity.client import ParityClient
from tests.conformance.parity.compare import compare
from tests.conformance.parity.request import Reply, Request, chat
from tests.conformance.parity.run import ParityOutcome, Servers, judge, judge_on

REQUEST = chat("Hi", stream=True)


class Scripted(ParityClient):
    """A server that streams a text in these pieces, other ones each time."""

    def __init__(self, *answers: Sequence[str]) -> None:
        super().__init__("http://unused", 1)
        self._answers = [_text(pieces) for pieces in answers]

    async def send(self, request: Request) -> Reply:
        """Give the next answer, the last one again and again."""
        if not request.streamed:
            return error("streams only", None, 503, "x")
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def _chunks(choices: Iterable[dict[str, Any]]) -> Reply:
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return stream([{**envelope, "choices": [{"index": 0, **choice}]} for choice in choices])


def _text(pieces: Sequence[str]) -> Reply:
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces), {}]
    return _chunks({"delta": delta, "finish_reason": None if delta else "stop"} for delta in deltas)


@pytest.mark.parametrize(("last", "differs"), [(["a", "b", "c", "d", "e"], False), (["abcde"], True)])
async def test_a_text_in_one_piece_differs_only_if_it_is_so_again(last: list[str], differs: bool) -> None:
    """A busy machine may send several tokens together, even twice; a server that streams nothing does so each time."""
    seen: list[ParityOutcome] = []
    async with Scripted(["abcde"], ["abcde"], last) as ours, Scripted(["a", "b", "c", "d", "e"]) as theirs:
        outcomes = await judge_on(Servers(ours, theirs), [REQUEST], False, 2, seen.append)

    assert bool(outcomes[0].differences) is differs
    assert seen == outcomes


@pytest.mark.parametrize(("answers", "differs"), [((["a"], ["b"], ["a"], ["b"]), False), ((["a"], ["b"]), True)])
async def test_a_written_request_is_sent_again_alone_where_the_reference_contradicted_itself(
    answers: tuple[list[str], ...], differs: bool
) -> None:
    """On a busy machine its parsers may get several tokens together; what it repeats is what it means."""
    async with Scripted(["b"]) as ours, Scripted(*answers) as theirs:
        (outcome,) = await judge_on(Servers(ours, theirs), [REQUEST], False, 2, lambda _: None)

    assert bool(outcome.differences) is differs


async def test_a_reference_that_sends_its_text_in_one_piece_once_is_stable() -> None:
    """It has not contradicted itself."""
    pieces = ["a", "b", "c", "d", "e"]
    async with Scripted(pieces) as ours, Scripted(pieces, ["abcde"], pieces) as theirs:
        outcome = await judge(Servers(ours, theirs), REQUEST, thorough=True)

    assert outcome.stable


def test_ids_behind_an_echo_may_all_come_in_the_last_chunk() -> None:
    """The echo has none: which chunks behind it have some is chance."""

    def echoed(*pieces: list[int]) -> Reply:
        choices: list[dict[str, Any]] = [{"delta": {"content": "echo"}, "finish_reason": None}]
        for number, ids in enumerate(pieces, 1):
            reason = "length" if number == len(pieces) else None
            choices.append({"delta": {"content": "x" * len(ids)}, "token_ids": ids, "finish_reason": reason})
        return _chunks(choices)

    assert not compare(REQUEST, echoed([1], [2, 3]), echoed([1, 2, 3]))
