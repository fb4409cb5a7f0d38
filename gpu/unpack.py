"""`python3 -m gpu.unpack`: keeps the parts that lie in the tree, and installs what they hold once all are there.

Standard library only. The parts may come one by one, and those that came before need not come again.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu.manifest import MANIFEST, PACKED, STREAM, Manifest, sha256_of

TREE = Path(__file__).parents[1]
FOLDER = Path("/tmp/tokenwire-gpu")  # noqa: S108  outside of the tree, and the same for every call
_PREPARE_MODEL = """
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model
print(f"the embedded model is in {prepare_embedded_model(default_cache_dir(), print)}")
"""


class Damaged(Exception):
    """Bytes differ from those that were packed."""


@dataclass(frozen=True, slots=True)
class KeptParts:
    """What has come of a packing."""

    manifest: Manifest
    damaged: Sequence[str]
    """Names of parts that differ from what was packed, or are still being copied."""


def keep_parts(packed: Path, folder: Path) -> KeptParts:
    """Copy the parts that came into the folder, under their checksums, by the latest manifest.

    Raises FileNotFoundError if there is none. A part that is damaged keeps no other from being kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {path: _manifest_in(path) for path in (*packed.glob(f"part-*/{MANIFEST}"), *folder.glob(MANIFEST))}
    manifests = [each for each in found.values() if each is not None]
    if not manifests:
        raise FileNotFoundError(f"no part lies in {packed}, and none came before")
    manifest = max(manifests, key=lambda each: each.packed_at)
    manifest.write(folder / MANIFEST)
    damaged = []
    for part in manifest.parts:
        came, kept = packed / part.name / STREAM, folder / part.sha256
        if came.exists() and not kept.exists():
            if sha256_of(came) == part.sha256:
                shutil.copyfile(came, partial := kept.with_suffix(".partial"))
                partial.rename(kept)
            elif found.get(came.with_name(MANIFEST)) in (manifest, None):  # else it is of an earlier packing
                damaged.append(part.name)
    return KeptParts(manifest, damaged)


def _manifest_in(path: Path) -> Manifest | None:
    """Return the manifest in a file; None if it is not complete, as while it is copied."""
    try:
        return Manifest.read(path)
    except (ValueError, KeyError, TypeError):
        return None


def missing_parts(manifest: Manifest, folder: Path) -> list[str]:
    """Return the names of the parts that have not come yet."""
    return [part.name for part in manifest.parts if not (folder / part.sha256).exists()]


def join(manifest: Manifest, folder: Path, out: Path) -> list[Path]:
    """Write the packed files into another folder."""
    with (out / STREAM).open("w+b") as stream:
        for part in manifest.parts:
            stream.write((folder / part.sha256).read_bytes())
        stream.seek(0)
        for file in manifest.files:
            data = stream.read(file.size)
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise Damaged(f"{file.name} is damaged: remove {folder} and bring all parts again")
            (out / file.name).write_bytes(data)
    return [out / file.name for file in manifest.files]


def install(wheels: Sequence[Path], site: Path) -> None:
    """Install wheels into a folder, which appears when it is complete."""
    shutil.rmtree(site, ignore_errors=True)
    shutil.rmtree(partial := site.with_suffix(".partial"), ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    # All in one call: of two that install into one folder, the second leaves out what the first has begun.
    subprocess.run([*pip, "--no-compile", "--no-cache-dir", "--target", str(partial), *map(str, wheels)], check=True)
    partial.rename(site)


def compile_in_background(site: Path) -> "subprocess.Popen[bytes]":
    """Byte-compile what was installed; until then every process compiles for itself."""
    return subprocess.Popen([sys.executable, "-m", "compileall", "-q", "-q", "-j", "0", str(site)])


def prepare_model(site: Path, tree: Path) -> None:
    """Convert the embedded model, unless that is done."""
    environment = {**os.environ, "PYTHONPATH": f"{site}:{tree}"}
    subprocess.run([sys.executable, "-c", _PREPARE_MODEL], env=environment, check=True)


def differences(machine: Mapping[str, str]) -> Iterator[str]:
    """Yield how the packages that are here differ from those that are expected."""
    for name, expected in machine.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            yield f"{name} is not here"
        else:
            if expected and found.partition("+")[0] != expected:
                yield f"{name} is {found}, not {expected}"


def unpack(packed: Path, folder: Path, tree: Path) -> None:
    """Do what can be done with the parts that are here, and say what is missing."""
    kept = keep_parts(packed, folder)
    manifest, missing = kept.manifest, missing_parts(kept.manifest, folder)
    print(f"have {len(manifest.parts) - len(missing)} of {len(manifest.parts)} parts", end="")
    print(f"; missing: {', '.join(missing)}" if missing else "", flush=True)
    for name in kept.damaged:
        print(f"{name} is damaged, or still being copied: bring it again", flush=True)
    for each in differences(manifest.machine):
        print(f"note: {each}", flush=True)
    if missing:
        return
    site, installed, compiling = folder / "site", folder / "installed", None
    if not (installed.exists() and installed.read_text() == manifest.packed_at):
        with TemporaryDirectory(dir=folder) as joined:
            install(join(manifest, folder, Path(joined)), site)
        installed.write_text(manifest.packed_at)
        compiling = compile_in_background(site)
    prepare_model(site, tree)
    if compiling is not None:
        compiling.wait()
    print(f"ready: export PYTHONPATH={site}:{tree}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Keep the parts that came, and install when all are there.")
    parser.add_argument("--packed", type=Path, default=TREE / PACKED, help="where parts lie")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are kept and installed")
    options = parser.parse_args()
    try:
        unpack(options.packed, options.folder, TREE)
    except (Damaged, FileNotFoundError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
