"""The part of a page between two marker comments, which a run writes anew."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MarkedPart:
    """A part of a page, by the names in its markers."""

    name: str
    end: str = "end"

    def write(self, page: Path, text: str) -> None:
        """Replace the part, or append it to a page without markers."""
        begin, end = f"<!-- {self.name} -->\n", f"<!-- {self.end} -->\n"
        before, _, rest = page.read_text().partition(begin)
        page.write_text(before + begin + text + end + rest.partition(end)[2])
