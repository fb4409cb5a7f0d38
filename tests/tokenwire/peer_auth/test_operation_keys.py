"""Keys of operations: what they may be, what they sign, and how they are rotated."""

from pathlib import Path

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.operation_keys import OperationKeys, open_operation_keys
from tokenwire.v1 import inference_pb2 as pb

NEW, OLD = "n" * 32, "o" * 32


@pytest.mark.parametrize(("text", "reason"), [("", "no key"), ("\n \n", "no key"), (f"{NEW}\nshort", "32 characters")])
def test_a_key_must_be_long(text: str, reason: str) -> None:
    """A worker has what is signed, so it could find a short one by trying. The message does not have the key."""
    with pytest.raises(InvalidRequest, match=reason) as refused:
        OperationKeys(text, "a test")
    assert "short" not in refused.value.message


def test_the_first_key_signs_and_all_verify() -> None:
    """This permits rotation."""
    both, new, old = OperationKeys(f"{NEW}\n{OLD}\n"), OperationKeys(NEW), OperationKeys(OLD)
    record = both.sign(b"operation")

    assert new.verify(record)
    assert both.verify(old.sign(b"operation"))
    assert not old.verify(record)


@pytest.mark.parametrize(
    "record",
    [
        pb.OperationRecord(operation=b"operation"),
        pb.OperationRecord(operation=b"operation", signatures=[b""]),
        pb.OperationRecord(operation=b"operation", signatures=[b"\0" * 32]),
        pb.OperationRecord(operation=b"other", signatures=OperationKeys(NEW).sign(b"operation").signatures),
    ],
)
def test_nothing_else_is_verified(record: pb.OperationRecord) -> None:
    """No signature, a made-up one, or that of another operation."""
    assert not OperationKeys(NEW).verify(record)


def test_keys_are_never_shown() -> None:
    """Settings are logged."""
    assert NEW not in f"{OperationKeys(NEW)} {OperationKeys(NEW)!r}"


def test_a_file_of_keys_is_reloaded(tmp_path: Path) -> None:
    """So that they are rotated without a restart; a file that is unusable meanwhile changes nothing."""
    file = tmp_path / "keys"
    file.write_text(OLD)
    keys = open_operation_keys(file, None)
    assert keys is not None
    record = keys().sign(b"operation")

    file.write_text("short")
    assert keys().verify(record)
    file.write_text(f"{NEW}\n")

    assert not keys().verify(record)


def test_without_a_file_there_may_be_fixed_keys_or_none(tmp_path: Path) -> None:
    """A file that cannot be read is an error that names it."""
    fixed = OperationKeys(NEW)
    found = open_operation_keys(None, fixed)

    assert found is not None
    assert found() is fixed
    assert open_operation_keys(None, None) is None
    with pytest.raises(InvalidRequest, match="--operations-key-file: cannot read"):
        open_operation_keys(tmp_path / "missing", None)
