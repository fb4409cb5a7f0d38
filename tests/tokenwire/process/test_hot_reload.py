"""Values that are reloaded when their files change."""

import logging
from pathlib import Path

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.process.hot_reload import Reloading


def numbers(file: Path) -> Reloading[int]:
    """Reload a number from a file."""

    def read() -> int:
        try:
            return int(file.read_text())
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"no number: {error}") from error

    return Reloading([file], read)


def test_a_value_is_reloaded(tmp_path: Path) -> None:
    """Also when the file is replaced, as Kubernetes does by a link."""
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    (link := tmp_path / "link").symlink_to("one")
    value = numbers(link)
    assert value.current() == 1

    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(link)

    assert value.current() == 2


def test_an_invalid_file_keeps_the_old_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Until it is corrected."""
    (file := tmp_path / "file").write_text("1")
    value = numbers(file)
    file.write_text("none")
    with caplog.at_level(logging.INFO):
        assert [value.current(), value.current()] == [1, 1]
    assert [str(file) in record.message for record in caplog.records] == [True]

    file.write_text("345")

    assert value.current() == 345


def test_an_initially_invalid_file_is_rejected(tmp_path: Path) -> None:
    """There is no old value."""
    with pytest.raises(InvalidRequest):
        numbers(tmp_path / "none")
