"""Rules of accessibility, checked in a page by axe-core."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.npm import fetch_npm
from tests.page.browser import Page
from tests.tokenizers import CACHE, making

_PACKAGE = "axe-core@4.14.1"
_FOUND = """axe.run().then(({ violations }) => violations.flatMap(({ id, help, nodes }) =>
  nodes.map(({ target, failureSummary }) => `${id} (${help}): ${target}: ${failureSummary}`)))"""


@cache
def _script() -> str:
    """Return axe-core's script; skips the test where npm cannot help."""
    path = CACHE / "axe" / "axe.min.js"
    with making(path.parent):
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
                fetch_npm(_PACKAGE, Path(temporary))
                shutil.rmtree(path.parent, ignore_errors=True)
                (Path(temporary) / "package").rename(path.parent)
    return path.read_text()


def violations(page: Page) -> list[str]:
    """Return the violated rules, each with an element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"void (() => {{ {_script()} }})()")
    found: list[str] = page.evaluate(_FOUND)
    return found
