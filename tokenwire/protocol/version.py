"""The protocol version and the compatibility check of peers."""

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

MAJOR = 1
MINOR = 9
FIRST_VERSION = pb.ProtocolVersion(major=MAJOR)
"""That of servers which announce nothing that later versions brought."""
_SENDS_HEARTBEATS = 2
_ANNOUNCES_IDENTITY = 6
_TAKES_PACKED_IDS = 9
_TAKES_BATCHES = 9


def protocol_version() -> pb.ProtocolVersion:
    """Return this build's protocol version."""
    return pb.ProtocolVersion(major=MAJOR, minor=MINOR)


def sends_heartbeats(worker: pb.ProtocolVersion) -> bool:
    """Return whether workers of this version send heartbeats: older ones do not know the event."""
    return worker.minor >= _SENDS_HEARTBEATS


def announces_identity(worker: pb.ProtocolVersion) -> bool:
    """Return whether workers of this version say what their tokens depend on: older ones do not know the fields."""
    return worker.minor >= _ANNOUNCES_IDENTITY


def takes_packed_ids(worker: pb.ProtocolVersion) -> bool:
    """Return whether workers of this version take prompts as bytes: older ones would see none."""
    return worker.minor >= _TAKES_PACKED_IDS


def takes_batches(worker: pb.ProtocolVersion) -> bool:
    """Return whether workers of this version take several commands at once: older ones do not know the command."""
    return worker.minor >= _TAKES_BATCHES


def check_peer(peer: pb.ProtocolVersion, peer_name: str) -> None:
    """Raise InvalidRequest that names the side to upgrade if `peer` has another major version."""
    if peer.major == MAJOR:
        return
    older = peer_name if peer.major < MAJOR else "this side"
    raise InvalidRequest(
        f"{peer_name} has protocol version {peer.major}.{peer.minor}, this side {MAJOR}.{MINOR}; "
        f"upgrade tokenwire on {older}."
    )
