"""The mutants that mutmut wrote into a copy of the tree: what each changes, and a fair sample of them."""

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

_NUMBERED = re.compile(r"__mutmut_(\d+|orig)$")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed function."""

    name: str
    """mutmut's name of it."""
    path: str
    """The module that it is of, as in the repository."""
    removed: str
    """The lines that it changes, as `ast` writes them."""
    added: str
    """What it makes of them."""

    @property
    def rewords(self) -> bool:
        """Whether it changes no more than the letters of a string."""
        return _letters(self.removed) == _letters(self.added)

    @property
    def is_logging(self) -> bool:
        """Whether it changes what is logged."""
        return self.removed.startswith("log.")

    def __str__(self) -> str:
        return f"{self.path}: {self.removed or '(nothing)'}  ->  {self.added or '(nothing)'}"


def mutants_of(folder: Path, path: str) -> list[Mutant]:
    """Return all mutants of a module, which mutmut wrote into `folder`."""
    tree = ast.parse((folder / path).read_text())
    functions: dict[str, dict[str, list[str]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (number := _NUMBERED.search(node.name)):
            lines = ast.unparse(node).replace(node.name, "").splitlines()
            functions.setdefault(node.name[: number.start()], {})[number[1]] = lines
    module = path.removesuffix(".py").replace("/", ".")
    return [
        Mutant(
            f"{module}.{function}__mutmut_{number}", path.removeprefix("tokenwire/"), *_change(versions["orig"], lines)
        )
        for function, versions in functions.items()
        for number, lines in versions.items()
        if number != "orig"
    ]


def draw_sample(mutants: dict[str, list[Mutant]], lines: dict[str, int], size: int, seed: int) -> list[Mutant]:
    """Return about `size` mutants, of each module as many as its share of all lines is; all if size is 0.

    Each has a rank of its own, so that an edit of the code changes little of the sample.
    """
    total = sum(lines.values())
    found: list[Mutant] = []
    for path, each in mutants.items():
        wanted = round(size * lines[path] / total) if size else len(each)
        found += sorted(each, key=lambda mutant: blake2b(f"{seed} {mutant.name}".encode()).digest())[:wanted]
    return found


def _change(before: list[str], after: list[str]) -> tuple[str, str]:
    changed = list(difflib.ndiff(before, after))
    return tuple(" / ".join(_marked(changed, mark)) for mark in "-+")  # type: ignore[return-value]


def _marked(lines: list[str], mark: str) -> Iterator[str]:
    return (line[2:].strip() for line in lines if line.startswith(mark + " "))


def _letters(text: str) -> str:
    return text.lower().replace("xx", "")
