"""What a choice has met, as its end and its slots are judged by it."""

from tests.simulation.inside import run_inside

_SESSIONS = """
    from tests.simulation.witness import Witness
    from tests.simulation.world import World
    from tokenwire.v1 import inference_pb2 as pb

    found = []
    witness, world = Witness(found.append, signed=False), World(0)
    journeys = witness.journeys

    def connect(call, draining=False):
        submit = pb.Submit(request_id="r0", slots=[0, 1])
        process = world.node(f"w{call}")
        witness.on_command(call, "10.0.0.1", process, pb.SessionRequest(hello=pb.Hello()))
        witness.on_event(call, pb.SessionResponse(welcome=pb.Welcome(draining=draining)))
        journeys.on_sent(None, "10.0.0.1", {0: ("r0", 0), 1: ("r0", 1)})
        witness.on_command(call, "10.0.0.1", process, pb.SessionRequest(submit=submit))
"""


def test_a_choice_has_lost_the_workers_whose_sessions_ended_while_it_was_there() -> None:
    """Neither those that drained, nor those that it had left, nor those of other choices."""
    run_inside(
        _SESSIONS
        + """
    for call in range(2):
        connect(call)
        finish = pb.StepFrame(finishes=[pb.Finish(slot=1, reason=pb.FINISH_REASON_STOP)])
        witness.on_event(call, pb.SessionResponse(frame=finish))
        witness.on_end(call, has_cause=True)
    connect(2, draining=True)
    witness.on_end(2, has_cause=True)
    assert journeys.losses == {("r0", 0): 2}, journeys.losses
    assert (journeys.most_losses("r0"), journeys.most_losses("r1")) == (2, 0)

    connect(3)
    connect(4)
    witness.on_end(3, has_cause=True)
    assert journeys.most_losses("r0") == 2
    refusal = pb.Refusal(slots=[0], code=pb.REFUSAL_CODE_UNAVAILABLE, message="not started")
    witness.on_event(4, pb.SessionResponse(refusal=refusal))
    assert journeys.most_losses("r0") == 3
    assert journeys.refusals["r0"] == ["not started"]
    assert not found
    """
    )


def test_a_session_ends_only_if_something_happened_to_it() -> None:
    """A coordinator that drops a worker for nothing is found, even if no request is lost by it."""
    run_inside(
        _SESSIONS
        + """
    connect(0)
    witness.on_end(0, has_cause=True)
    assert not found
    connect(1)
    witness.on_end(1, has_cause=False)
    assert "though nothing happened to it" in found[0]
    """
    )


def test_a_choice_waits_in_the_queue_until_it_is_sent() -> None:
    """What is left of a request waits anew when a part of it is sent."""
    run_inside(
        _SESSIONS
        + """
    journeys.on_queued([("r0", 0), ("r0", 1)], 1.0)
    assert journeys.longest_wait_s("r0", 5.0) == 4.0
    connect(0)
    assert journeys.longest_wait_s("r0", 5.0) == 0.0
    journeys.on_queued([("r0", 1)], 4.0)
    assert journeys.longest_wait_s("r0", 5.0) == 1.0
    """
    )


_ABORTED = """
    def abort_finish(call, slot):
        finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_ABORT)
        witness.on_event(call, pb.SessionResponse(frame=pb.StepFrame(finishes=[finish])))
"""


def test_a_worker_ends_as_aborted_only_what_somebody_aborted() -> None:
    """Its slot, its id, or all that its worker had."""
    run_inside(
        _SESSIONS
        + _ABORTED
        + """
    from tokenwire.v1 import control_pb2

    connect(0)
    (session,) = witness.sessions
    process = session.process
    witness.on_command(0, "10.0.0.1", process, pb.SessionRequest(abort=pb.Abort(slots=[0])))
    abort_finish(0, 0)
    assert not found
    abort_finish(0, 1)
    assert "r0 was aborted at 10.0.0.1, though nobody has asked for it" in found.pop()

    connect(1)
    witness.on_control_call(process, control_pb2.AbortRequest(request_ids=["r0"]))
    abort_finish(1, 0)
    assert not found
    """
    )


def test_a_slot_is_unwanted_once_its_choice_has_ended_or_is_elsewhere_until_it_is_aborted() -> None:
    """Then its coordinator has to send an abort."""
    run_inside(
        _SESSIONS
        + """
    connect(0)
    (session,) = witness.sessions
    assert session.unwanted(lambda choice: True) == []
    assert session.unwanted(lambda choice: choice != ("r0", 1)) == [1]
    connect(1)
    assert session.unwanted(lambda choice: True) == [0, 1]
    witness.on_command(0, "10.0.0.1", session.process, pb.SessionRequest(abort=pb.Abort(slots=[0])))
    assert session.unwanted(lambda choice: True) == [1]
    """
    )


def test_log_probabilities_are_those_of_the_ids_before_them() -> None:
    """In a chat and in a completion; those of another position are found."""
    run_inside(
        """
        from types import SimpleNamespace
        from tests.simulation.logprobs import logprobs_problem
        from tokenwire.worker.simulated_engine.tokens import LogprobShape, hash_context, logprob_rows

        placement, ids = SimpleNamespace(words=tuple(range(65, 91))), [70, 71, 72, 73]

        def read(*places):
            rows = [logprob_rows(LogprobShape(2), placement.words, [(hash_context(ids[:place])[0], ids[place])])
                    for place in places]
            tops = [{str(number): each for number, each in enumerate(row.logprobs[1:])} for row in rows]
            own = [row.logprobs[0] for row in rows]
            chat = [{"logprob": one, "top_logprobs": [{"logprob": each} for each in top.values()]}
                    for one, top in zip(own, tops)]
            return {"completions": {"token_logprobs": own, "top_logprobs": tops}, "chat": {"content": chat}}

        for route in ("chat", "completions"):
            spec = {"route": route, "logprobs": 2, "sampling": "plain"}
            assert not logprobs_problem(read(2, 3)[route], ids, 2, placement, spec)
            assert "instead of" in logprobs_problem(read(3, 2)[route], ids, 2, placement, spec)
            assert "rows" in logprobs_problem(read(3)[route], ids, 2, placement, spec)
            assert "rows" in logprobs_problem(None, ids, 2, placement, spec)
        """
    )


def test_a_choice_says_that_it_was_resumed_if_it_had_tokens_and_was_sent_again() -> None:
    """One that only waits for that may say either, as may one whose tokens may never have been dispatched.

    One without tokens was not resumed, wherever it went.
    """
    run_inside(
        _SESSIONS
        + """
    one, other = [("r0", 0)], [("r0", 1)]
    connect(0)
    witness.on_event(0, pb.SessionResponse(frame=pb.StepFrame(slots=[0], token_ids=[1])))
    assert journeys.mark_problem(one, True) and not journeys.mark_problem(one, False)
    journeys.on_queued([*one, *other], 0.0)
    connect(2)
    assert not journeys.mark_problem(one, True) and not journeys.mark_problem(one, False)

    def lose(call, after_s):
        later = world.time() + after_s
        world.time = lambda: later
        witness.on_end(call, has_cause=True)
        journeys.on_queued([*one, *other], 0.0)

    lose(2, 1.0)
    connect(1)
    assert not journeys.mark_problem(one, True) and not journeys.mark_problem(one, False)
    witness.on_event(1, pb.SessionResponse(frame=pb.StepFrame(slots=[0], token_ids=[1])))
    lose(1, 1.0)
    assert not journeys.mark_problem(one, True) and not journeys.mark_problem(one, False)
    connect(3)
    assert not journeys.mark_problem(one, True) and journeys.mark_problem(one, False)
    assert journeys.mark_problem(other, True) and not journeys.mark_problem(other, False)
    assert not journeys.mark_problem(one + other, True) and journeys.mark_problem(one + other, False)
    """
    )
