"""What a packing consists of: files, one after the other in a stream, and the parts into which the stream is cut.

Standard library only: the machine that unpacks has nothing else yet.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

PACKED = Path(".gpu")
"""Where parts lie in the tree: a folder each, `part-01`, with STREAM and a copy of MANIFEST."""
STREAM = "stream"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class PackedBytes:
    """A file, or a part of the stream."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One packing."""

    packed_at: str
    """ISO 8601, UTC: of two, the later is the greater."""
    python: str
    """The version that the wheels are for."""
    machine: dict[str, str]
    """Packages that the machine is expected to have: versions by name, empty where any will do."""
    files: list[PackedBytes]
    parts: list[PackedBytes]

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """Read it from a file."""
        data = json.loads(path.read_text())
        files, parts = ([PackedBytes(**each) for each in data[key]] for key in ("files", "parts"))
        return cls(data["packed_at"], data["python"], data["machine"], files, parts)

    def write(self, path: Path) -> None:
        """Write it into a file."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def sha256_of(path: Path) -> str:
    """Return a file's checksum."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
