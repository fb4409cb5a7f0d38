"""What is kept for later runs is complete."""

from pathlib import Path

import pytest

from tests.cache import kept


def _make_with_proof(temporary: Path) -> Path:
    (temporary / "made").mkdir()
    (temporary / "made" / "proof").touch()
    return temporary / "made"


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    """Later calls return it as it is; nothing else is left behind but the lock."""
    folder = kept(tmp_path / "kept", _make_with_proof, "proof")
    (folder / "more").touch()

    assert sorted(path.name for path in kept(folder, _make_with_proof, "proof").iterdir()) == ["more", "proof"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "kept.lock"]


def test_a_folder_without_its_proof_is_made_anew(tmp_path: Path) -> None:
    """An earlier version of these tests may have left it."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").touch()

    assert [path.name for path in kept(tmp_path / "kept", _make_with_proof, "proof").iterdir()] == ["proof"]


def test_what_could_not_be_made_is_not_kept(tmp_path: Path) -> None:
    """An error while it is made leaves nothing."""

    def fail(temporary: Path) -> Path:
        (temporary / "made").mkdir()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        kept(tmp_path / "kept", fail)
    assert not (tmp_path / "kept").exists()
