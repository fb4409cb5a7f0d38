"""Hooks of mkdocs: README.md and CHANGELOG.md become pages, and links to the source lead to the repository."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Files of the root that become pages."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
"""The path of a relative link."""
_WEIGHTS = {"reference/options.md": 4, "reference/errors.md": 4, "reference/http.md": 2, "changelog.md": 0.2}
"""What pages count in the search: those for whose tables readers search most, and the one for which they do not."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in _PAGES.items():
        text = _LINK.sub(lambda found: _target(found[1], "", config), (_ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    """Let links out of docs/ lead to the other pages, or to the repository."""
    source = page.file.src_uri
    if source in _WEIGHTS:
        page.meta["search"] = {"boost": _WEIGHTS[source]}
    if source in _PAGES.values():
        return markdown
    folder = posixpath.dirname(f"docs/{source}")
    start = posixpath.dirname(source)
    return _LINK.sub(lambda found: _relative(_target(found[1], folder, config), start), markdown)


def _target(link: str, folder: str, config: MkDocsConfig) -> str:
    """Return a page's path below docs/, or a file's URL in the repository. Raises PluginError for what is not there."""
    path = posixpath.normpath(posixpath.join(folder, link))
    if not (_ROOT / path).exists():
        raise PluginError(f"a link leads to {path}, which does not exist")
    if path in _PAGES:
        return _PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    kind = "tree" if (_ROOT / path).is_dir() else "blob"
    return f"{config.extra['repository']}/{kind}/main/{path}"


def _relative(target: str, start: str) -> str:
    return target if "://" in target else posixpath.relpath(target, start or ".")
