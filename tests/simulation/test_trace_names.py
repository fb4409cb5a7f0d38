"""Logs of runs say what passes between processes, in words."""

from tests.simulation.inside import run_inside


def test_messages_name_streams_tokens_and_their_positions() -> None:
    """A frame may have tokens of several streams, and their ends."""
    run_inside(
        """
        from tests.simulation.trace_names import TraceNames
        from tokenwire.v1 import inference_pb2 as pb

        names = TraceNames()
        session = "/tokenwire.v1.Inference/Session"
        assert names.describe(True, "call", 1, session, b"") == "Session 1 call"
        submit = pb.Submit(request_id="cmpl-r1", slots=[4, 5], prompt_token_ids=[1] * 10)
        command = pb.SessionRequest(submit=submit).SerializeToString()
        told = names.describe(True, "message", 1, command)
        assert told == "Session 1 submit cmpl-r1 in slot 4 5: 10 tokens"

        finish = pb.Finish(slot=5, reason=pb.FINISH_REASON_LENGTH)
        frames = (
            (pb.StepFrame(slots=[4], token_ids=[7]), "cmpl-r1#0 at 10: 7"),
            (pb.StepFrame(slots=[4, 5], token_ids=[8, 9, 9], counts=[1, 2], finishes=[finish]),
             "cmpl-r1#0 at 11: 8; cmpl-r1#1 at 10..11: 9 9, ends: length"),
        )
        for frame, expected in frames:
            event = pb.SessionResponse(frame=frame).SerializeToString()
            assert names.describe(False, "message", 1, event) == f"Session 1 frame {expected}"
        """
    )


def test_a_log_changes_nothing_about_a_run() -> None:
    """Its trace is the same with one as without."""
    run_inside(
        """
        import io
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        log = io.StringIO()
        assert run_script(generate_script(3), log).trace == run_script(generate_script(3)).trace
        assert "submit " in log.getvalue() and " at " in log.getvalue()
        """
    )
