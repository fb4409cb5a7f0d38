"""Values that follow their files."""

import logging
from pathlib import Path

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.hot_reload import Reloading


def numbers(file: Path) -> Reloading[int]:
    """Follow a number in a file."""

    def read() -> int:
        try:
            return int(file.read_text())
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"no number: {error}") from error

    return Reloading([file], read)


def test_a_value_follows_its_file(tmp_path: Path) -> None:
    """Also where the file is replaced by another one, as Kubernetes does it by a link."""
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    (link := tmp_path / "link").symlink_to("one")
    value = numbers(link)
    assert value.current() == 1

    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(link)

    assert value.current() == 2


def test_a_broken_file_keeps_the_old_value_and_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Until it is mended."""
    (file := tmp_path / "file").write_text("1")
    value = numbers(file)
    file.write_text("none")
    with caplog.at_level(logging.INFO):
        assert [value.current(), value.current()] == [1, 1]
    assert [str(file) in record.message for record in caplog.records] == [True]

    file.write_text("345")

    assert value.current() == 345


def test_a_file_that_is_wrong_from_the_start_is_refused(tmp_path: Path) -> None:
    """There is no old value."""
    with pytest.raises(InvalidRequest):
        numbers(tmp_path / "none")
