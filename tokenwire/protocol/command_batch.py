"""Several commands of a session in one message."""

from collections.abc import Sequence

from tokenwire.v1 import inference_pb2 as pb


def commands_of(message: pb.SessionRequest) -> Sequence[pb.SessionRequest]:
    """Return the commands of a message: almost always it is one."""
    return message.batch.commands if message.WhichOneof("command") == "batch" else (message,)


def batch_of(commands: Sequence[pb.SessionRequest]) -> pb.SessionRequest:
    """Return commands as one message."""
    if len(commands) == 1:
        return commands[0]
    return pb.SessionRequest(batch=pb.CommandBatch(commands=commands))
