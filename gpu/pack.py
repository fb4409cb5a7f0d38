"""`python -m gpu.pack`: downloads what a machine without network lacks, and cuts it into parts that can be carried."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import BytesHeaderParser
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile, ZipInfo

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from gpu.manifest import MANIFEST, PACKED, STREAM, Manifest, PackedBytes, sha256_of

PACKAGES = Path(__file__).with_name("packages.toml")
PART_BYTES = 53 * 2**20
# pip matches these exactly, except 2014, 2010 and 1, which include the older ones.
_GLIBC = ("2_17", "2_24", "2_26", "2_27", "2_28", "2_31", "2_34", "2_35")
_PLATFORMS = [*(f"manylinux_{version}_x86_64" for version in _GLIBC), "manylinux2014_x86_64", "manylinux1_x86_64"]
_LARGE_BYTES = 2**20
_MUCH_SMALLER = 0.6
"""What deflate brings to less than this, kernels above all, LZMA brings to much less still; but it takes long."""


@dataclass(frozen=True, slots=True)
class KitPackages:
    """The contents of packages.toml."""

    python: str
    wheels: Mapping[str, str]
    """What is brought: versions by name."""
    machine: Mapping[str, str]
    """What is there: versions by name, empty where it is not known."""
    without: Mapping[str, str]
    """What is required and done without, with reasons."""
    without_files: Mapping[str, Sequence[str]]
    """Patterns of files that are taken out of wheels, by package."""

    @classmethod
    def read(cls, path: Path) -> "KitPackages":
        """Read it from a file."""
        data = tomllib.loads(path.read_text())
        return cls(data["python"], data["wheels"], data["machine"], data["without"], data["without-files"])


def download(packages: KitPackages, python: str, folder: Path) -> list[Path]:
    """Download the wheels with pip, as it is configured; return them in the order of packages.toml."""
    wanted = [f"{name}=={version}" for name, version in packages.wheels.items()]
    target = ["--python-version", python, "--implementation", "cp", *(f"--platform={each}" for each in _PLATFORMS)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *target]
    subprocess.run([*command, "--dest", str(folder), *wanted], check=True)
    found = {name_and_version(path): path for path in folder.glob("*.whl")}
    return [found[name, version] for name, version in packages.wheels.items()]


def name_and_version(wheel: Path) -> tuple[str, str]:
    """Return the name and version in a wheel's file name."""
    name, version, *_ = parse_wheel_filename(wheel.name)
    return name, str(version)


def unmet(packages: KitPackages, wheels: Iterable[Path], python: str) -> Iterator[str]:
    """Yield the requirements of the wheels that neither they nor the machine meet. Extras are not looked into."""
    there = {**packages.machine, **packages.wheels}
    environment = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": "x86_64"}
    for wheel in wheels:
        for requirement in requirements(wheel):
            name = canonicalize_name(requirement.name)
            applies = not requirement.marker or requirement.marker.evaluate({**environment, "extra": ""})
            if not applies or name in packages.without:
                continue
            if name not in there:
                yield f"{wheel.name} requires {requirement}"
            elif (version := there.get(name)) and not requirement.specifier.contains(version, prereleases=True):
                yield f"{wheel.name} requires {requirement}, not {version}"


def requirements(wheel: Path) -> Iterator[Requirement]:
    """Yield what a wheel's metadata say that it requires."""
    with ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA"))
        metadata = BytesHeaderParser().parsebytes(archive.read(path))
    for line in metadata.get_all("Requires-Dist", []):
        yield Requirement(line)


def repack(wheel: Path, folder: Path, without: Sequence[str] = ()) -> Path:
    """Write a wheel anew, smaller, without some of its files; pip installs it like any other."""
    with ZipFile(wheel) as old, ZipFile(folder / wheel.name, "w") as new:
        for each in old.infolist():
            if not any(fnmatch(each.filename, pattern) for pattern in without):
                new.writestr(each, old.read(each), compress_type=_compression(each))
    return folder / wheel.name


def _compression(member: ZipInfo) -> int:
    pays = member.file_size >= _LARGE_BYTES and member.compress_size < _MUCH_SMALLER * member.file_size
    return ZIP_LZMA if pays else ZIP_DEFLATED


def cut(packages: KitPackages, files: Sequence[Path], out: Path, part_bytes: int = PART_BYTES) -> Manifest:
    """Write files, one after the other, as parts of at most so many bytes; replaces the parts that are there."""
    for old in out.glob("part-*"):
        shutil.rmtree(old)
    parts = []
    for number, part in enumerate(_parts(files, part_bytes), 1):
        folder = out / f"part-{number:02}"
        folder.mkdir(parents=True)
        (folder / STREAM).write_bytes(part)
        parts.append(PackedBytes(folder.name, len(part), sha256(part).hexdigest()))
    packed = [PackedBytes(path.name, path.stat().st_size, sha256_of(path)) for path in files]
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    manifest = Manifest(now, packages.python, dict(packages.machine), packed, parts)
    for part_folder in parts:
        manifest.write(out / part_folder.name / MANIFEST)
    return manifest


def _parts(files: Sequence[Path], part_bytes: int) -> Iterator[bytes]:
    part = bytearray()
    for path in files:
        with path.open("rb") as file:
            while data := file.read(part_bytes - len(part)):
                part += data
                if len(part) == part_bytes:
                    yield bytes(part)
                    part.clear()
    if part:
        yield bytes(part)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=PACKED, show_default=True, help="Where parts go.")
@click.option("--python", help="The version that wheels are for. [default: that of packages.toml]")
@click.option("--processes", default=os.cpu_count(), show_default=True, help="How many wheels are packed at once.")
def main(out: Path, python: str | None, processes: int) -> None:
    """Pack what a machine without network lacks into parts of at most 53 MiB."""
    packages = KitPackages.read(PACKAGES)
    python = python or packages.python
    downloads, repacked = out / "wheels", out / "repacked"
    click.echo(f"downloading {len(packages.wheels)} wheels into {downloads}")
    wheels = download(packages, python, downloads)
    if missing := list(unmet(packages, wheels, python)):
        raise click.ClickException("packages.toml does not meet what is required:\n" + "\n".join(missing))
    click.echo("packing: some minutes")
    shutil.rmtree(repacked, ignore_errors=True)
    repacked.mkdir()
    without = [packages.without_files.get(name_and_version(wheel)[0], ()) for wheel in wheels]
    with ProcessPoolExecutor(processes) as pool:
        files = list(pool.map(repack, wheels, [repacked] * len(wheels), without))
    manifest = cut(packages, files, out)
    shutil.rmtree(repacked)
    for part in manifest.parts:
        click.echo(f"{out / part.name}  {part.size / 2**20:5.1f} MiB")
    click.echo("Bring each into the same place in the tree there, one or several at a time, and run, each time:")
    click.echo("python3 -m gpu.unpack")


if __name__ == "__main__":
    main()
