"""The commands of one session, in order."""

from tests.coordinator.fleet.sessions import begin_to_read
from tokenwire.coordinator.fleet.transport.base import CommandQueue
from tokenwire.v1 import inference_pb2 as pb


def command(slot: int) -> pb.SessionRequest:
    """Return a command."""
    return pb.SessionRequest(submit=pb.Submit(slots=[slot]))


async def test_commands_come_in_their_order_and_then_end() -> None:
    """Also those that were put before the queue was closed."""
    queue = CommandQueue()
    queue.put(command(1))
    queue.put(command(2))
    queue.close()

    assert [each.submit.slots[0] async for each in queue] == [1, 2]


async def test_a_reader_that_was_cancelled_loses_no_command() -> None:
    """gRPC leaves the queue in the middle of a read."""
    queue = CommandQueue()
    await begin_to_read(queue)
    queue.put(command(3))

    assert (await anext(queue)).submit.slots == [3]
