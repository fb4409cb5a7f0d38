"""Protocol versions."""

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.version import FIRST_VERSION, MAJOR, MINOR, announces_identity, check_peer, protocol_version
from tokenwire.v1 import inference_pb2 as pb


def test_minor_versions_may_differ() -> None:
    """A rollout mixes minor versions."""
    check_peer(pb.ProtocolVersion(major=MAJOR, minor=MINOR + 5), "worker w")


@pytest.mark.parametrize(("major", "older"), [(MAJOR + 1, "this side"), (0, "worker w")])
def test_another_major_version_names_the_side_to_upgrade(major: int, older: str) -> None:
    """The older one."""
    with pytest.raises(InvalidRequest, match=f"upgrade tokenwire on {older}"):
        check_peer(pb.ProtocolVersion(major=major), "worker w")


def test_older_workers_cannot_say_what_they_are() -> None:
    """Nor can servers that are not ours."""
    versions = [FIRST_VERSION, *(pb.ProtocolVersion(major=MAJOR, minor=minor) for minor in (5, 6)), protocol_version()]
    assert [announces_identity(version) for version in versions] == [False, False, True, True]
