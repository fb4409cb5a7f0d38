"""Workers listed in a file."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.coordinator.fleet.discovery.running_source import run_source
from tests.workers import until
from tokenwire.coordinator.fleet.discovery.file import FileSource

SOON = 0.01


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    """Blank lines, comments and invalid lines are skipped; a changed file updates the list."""
    path = tmp_path / "workers"
    path.write_text("# the fleet\n\none:1  # the first\nhttp://two:2\nnonsense\nunix:/run/three\n")
    async with run_source(FileSource(path, SOON)) as updates:
        await updates.become("one:1", "http://two:2", "unix:/run/three")
        path.write_text("one:1\n")
        await updates.become("one:1")
        path.write_text("")
        await updates.become()


async def test_an_invalid_line_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its number and the reason."""
    path = tmp_path / "workers"
    path.write_text("one:1\ntwo\n")
    async with run_source(FileSource(path, SOON)) as updates:
        await updates.become("one:1")

    assert "line 2: 'two' is not a worker address" in caplog.text


async def test_a_mounted_file_may_be_swapped(tmp_path: Path) -> None:
    """Kubernetes swaps a link to the directory of a ConfigMap."""
    for name, text in (("old", "one:1"), ("new", "two:2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workers").write_text(text)
    data, path = tmp_path / "data", tmp_path / "data" / "workers"
    data.symlink_to("old")
    async with run_source(FileSource(path, SOON)) as updates:
        await updates.become("one:1")
        (tmp_path / "next").symlink_to("new")
        os.replace(tmp_path / "next", data)
        await updates.become("two:2")


async def test_a_missing_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last list stays, which is logged once, and the file is read again when it is back."""
    path = tmp_path / "workers"
    async with run_source(FileSource(path, SOON)) as updates:
        await until(lambda: "cannot read workers" in caplog.text)
        path.write_text("one:1")
        await updates.become("one:1")
        path.unlink()
        await until(lambda: caplog.text.count("cannot read workers") == 2)
        await asyncio.sleep(5 * SOON)
        path.write_text("two:2")
        await updates.become("two:2")

    assert updates.lists == [["one:1"], ["two:2"]]
    assert caplog.text.count("cannot read workers") == 2
