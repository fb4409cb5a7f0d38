"""The version of the wire protocol, and what makes two versions speak to each other."""

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

MAJOR = 1
MINOR = 4


def version() -> pb.ProtocolVersion:
    """Return this build's protocol version."""
    return pb.ProtocolVersion(major=MAJOR, minor=MINOR)


def check_peer(peer: pb.ProtocolVersion, peer_name: str) -> None:
    """Raise InvalidRequest, saying what to upgrade, when `peer` speaks another major version."""
    if peer.major == MAJOR:
        return
    older = peer_name if peer.major < MAJOR else "this side"
    raise InvalidRequest(
        f"{peer_name} speaks protocol {peer.major}.{peer.minor}, this side {MAJOR}.{MINOR}; "
        f"upgrade tokenwire on {older}."
    )
