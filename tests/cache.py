"""What tests fetch or make once, and keep for later runs."""

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parent / ".cache"


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Let one process at a time make what is kept in a folder: tests run in several."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(folder: Path, make: Callable[[Path], Path], proof: str = "") -> Path:
    """Return a folder that is made once; what is there was made completely.

    make: makes it somewhere in a temporary folder, and returns where. proof: a file without which it is made anew.
    """
    with making(folder):
        if not (folder / proof).exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                made = make(Path(temporary))
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    return folder


def kept_model(package: Path, name: str, make: Callable[[Path], Path]) -> Path:
    """Return the folder of a model, made anew when the package that makes it has changed; see `kept`."""
    sources = b"".join(path.read_bytes() for path in sorted(package.glob("*.py")))
    return kept(CACHE / "models" / hashlib.sha256(sources).hexdigest()[:16] / name, make)
