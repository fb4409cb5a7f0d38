"""Parts of pages that runs write."""

from pathlib import Path

from tests.marked_part import MarkedPart


def test_only_the_marked_part_changes(tmp_path: Path) -> None:
    """A page may have several; one without the markers gets them."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n<!-- one -->\nold\n<!-- end -->\nmiddle\n")

    MarkedPart("two", "end of two").write(page, "2\n")
    MarkedPart("one").write(page, "1\n")

    assert page.read_text() == ("# Page\n<!-- one -->\n1\n<!-- end -->\nmiddle\n<!-- two -->\n2\n<!-- end of two -->\n")
    assert MarkedPart("one").read(page) == "1\n"
    assert MarkedPart("three").read(page) == ""
