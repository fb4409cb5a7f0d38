"""Protocol versions."""

import pytest

from tokenwire import protocol
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def test_minor_versions_may_differ() -> None:
    """A rollout mixes minor versions."""
    protocol.check_peer(pb.ProtocolVersion(major=protocol.MAJOR, minor=protocol.MINOR + 5), "worker w")


@pytest.mark.parametrize(("major", "older"), [(protocol.MAJOR + 1, "this side"), (0, "worker w")])
def test_another_major_version_names_the_side_to_upgrade(major: int, older: str) -> None:
    """The older one."""
    with pytest.raises(InvalidRequest, match=f"upgrade tokenwire on {older}"):
        protocol.check_peer(pb.ProtocolVersion(major=major), "worker w")
