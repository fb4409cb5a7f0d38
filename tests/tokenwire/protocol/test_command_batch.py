"""Several commands in one message."""

from tokenwire.protocol.command_batch import batch_of, commands_of
from tokenwire.v1 import inference_pb2 as pb

COMMANDS = [pb.SessionRequest(submit=pb.Submit(slots=[1])), pb.SessionRequest(abort=pb.Abort(slots=[1]))]


def test_a_batch_has_its_commands_in_their_order() -> None:
    """As they are, over a wire."""
    sent = batch_of(COMMANDS).SerializeToString()

    assert list(commands_of(pb.SessionRequest.FromString(sent))) == COMMANDS


def test_one_command_is_sent_as_it_is() -> None:
    """Also a worker that knows no batches takes it, and also a command that nobody knows."""
    for command in (*COMMANDS, pb.SessionRequest()):
        assert batch_of([command]) is command
        assert commands_of(command) == (command,)
