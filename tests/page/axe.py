"""Rules of accessibility, checked in a page by axe-core."""

from functools import cache
from pathlib import Path

from tests.cache import CACHE, kept
from tests.npm import fetch_npm
from tests.page.browser import Page

_PACKAGE = "axe-core@4.14.1"
_FOUND = """axe.run(%s).then(({ violations }) => violations.flatMap(({ id, help, nodes }) =>
  nodes.map(({ target, failureSummary }) => `${id} (${help}): ${target}: ${failureSummary}`)))"""


@cache
def _script() -> str:
    """Return axe-core's script; skips the test where npm cannot help."""

    def fetch(folder: Path) -> Path:
        fetch_npm(_PACKAGE, folder)
        return folder / "package"

    return (kept(CACHE / "axe", fetch, "axe.min.js") / "axe.min.js").read_text()


def violations(page: Page, scope: str = "") -> list[str]:
    """Return the violated rules, each with an element; scope is what axe.run() takes, in JavaScript."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"void (() => {{ {_script()} }})()")
    found: list[str] = page.evaluate(_FOUND % scope)
    return found
