"""The part of a page between two marker comments, which a run writes anew."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MarkedPart:
    """A part of a page, by the names in its markers."""

    name: str
    end: str = "end"

    def read(self, page: Path) -> str:
        """Return the part; empty if the page has none."""
        return page.read_text().partition(f"<!-- {self.name} -->\n")[2].partition(f"<!-- {self.end} -->\n")[0]

    def write(self, page: Path, text: str) -> None:
        """Replace the part, or append it to a page without markers."""
        begin, end = f"<!-- {self.name} -->\n", f"<!-- {self.end} -->\n"
        before, _, rest = page.read_text().partition(begin)
        page.write_text(before + begin + text + end + rest.partition(end)[2])
