"""`python -m tests.compat.internals [VERSION]`: which of vLLM's internals the worker uses, and which are not there.

Only sources are read: without a version those that are installed here, else those of the wheel of that version, which
is fetched without what it depends on. So a version can be looked at that this machine cannot run, the day it appears.
"""

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.compat.environments import ENVIRONMENTS, fetched_wheel
from tests.compat.sources import ANY, Sources, VllmClass, stored_on_self
from tests.compat.use import Argument, Attribute, Used, used

GUARDED = {
    "EngineCoreOutput: prompt_token_id_logprobs": "SamplingParams: prompt_logprob_token_ids",
    "WeightVersionSpan: version": "CompletionOutput: weight_versions",
    "vllm.exceptions: QueueOverflowError": "SchedulerConfig: max_num_queued_reqs",
    "vllm.exceptions: MaxQueuedTokensError": "SchedulerConfig: max_num_queued_tokens",
}
"""What is used only in a vLLM that has something else, too."""


@dataclass
class Moved:
    """What the adapters use and a vLLM lacks, as `module: name`."""

    missing: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    """Missing, but the adapters ask before they use it."""
    changed: list[str] = field(default_factory=list)
    """There, but otherwise than in the vLLM that is installed here: parameters, an order of fields."""


def moved(sources: Sources, reference: Sources, use: Used | None = None) -> Moved:
    """Compare a vLLM with what the adapters use, and what it has of that with a reference."""
    use = use or used()
    found = Moved()
    ours, lacks = lacking(reference, use), lacking(sources, use)
    named = {in_words(each) for each in lacks}
    for each in sorted((use.attributes | use.arguments) - ours, key=in_words):
        if each in lacks:
            handled = each.name in use.asked or GUARDED.get(in_words(each)) in named
            (found.handled if handled else found.missing).append(in_words(each))
        elif isinstance(each, Attribute) and (change := _change(sources, reference, each)):
            found.changed.append(f"{in_words(each)}({change})")
    found.changed += _reordered(sources, reference, use)
    found.missing += [*_unset(sources, use), *_unlike(sources, use)]
    return found


def lacking(sources: Sources, use: Used) -> set[Attribute | Argument]:
    """Return what a vLLM lacks of it; the one here lacks only what is of objects of ours with the names of vLLM's."""
    return {each for each in use.attributes | use.arguments if not _has(sources, each)}


def _has(sources: Sources, each: Attribute | Argument) -> bool:
    owner = each.owner
    if isinstance(each, Attribute):
        return each.name in sources.members(owner) if owner.name else sources.bound(owner.module, each.name)
    if each.method:
        taken = sources.members(owner).get(each.method)
    elif each.name in sources.fields(owner):
        return True
    else:
        taken = sources.parameters(owner.module, owner.name)
    # Without the method itself nothing is known of what it takes: the method is what is missing.
    return taken is None or each.name in taken or ANY in taken


def in_words(each: Attribute | Argument) -> str:
    """Return it in a few words."""
    owner = each.owner.name or each.owner.module
    if isinstance(each, Attribute):
        return f"{owner}: {each.name}"
    return f"{owner}: {each.method}({each.name}=)" if each.method else f"{owner}: {each.name}="


def _change(sources: Sources, reference: Sources, each: Attribute) -> str:
    """Return how the parameters of a method or function differ; of classes the arguments are compared one by one."""
    if each.owner.name:
        return _difference(sources.members(each.owner)[each.name], reference.members(each.owner)[each.name])
    definition = reference.find(each.owner.module, each.name)
    if definition is None or isinstance(definition[1], ast.ClassDef):
        return ""
    now, before = (some.parameters(each.owner.module, each.name) for some in (sources, reference))
    return _difference(now or (), before or ())


def _difference(now: tuple[str, ...], before: tuple[str, ...]) -> str:
    """Return the parameters that came, with +, and those that are gone, with -."""
    if now == before:
        return ""
    more = [f"+{each}" for each in now if each not in before]
    return ", ".join(more + [f"-{each}" for each in before if each not in now]) or "another order"


def _reordered(sources: Sources, reference: Sources, use: Used) -> Iterator[str]:
    for owner, count in sorted(use.leading):
        now, before = (some.fields(owner)[:count] for some in (sources, reference))
        if now != before:
            yield f"{owner.name}: begins with {', '.join(now) or 'nothing'}"


def _unset(sources: Sources, use: Used) -> Iterator[str]:
    """Yield what methods set that the adapters replace, and the replacements do not set."""
    for owner, method, ours in sorted(use.replaced, key=str):
        node = _method(sources, owner, method)
        elsewhere = {*ours, *sources.fields(owner)}
        for each in sorted(stored_on_self(node) - elsewhere if node is not None else ()):
            yield f"{owner.name}: {method} sets {each}"


def _unlike(sources: Sources, use: Used) -> Iterator[str]:
    """Yield what vLLM reads of objects that the adapters pass for its own, and these do not have."""
    for owner, method, place, has in sorted(use.stand_ins, key=str):
        node = _method(sources, owner, method)
        if node is not None and len(node.args.args) > place + 1:
            name = node.args.args[place + 1].arg
            read = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == name
            }
            yield from (f"{owner.name}: {method} reads {name}.{each}" for each in sorted(read - has))


def _method(sources: Sources, owner: VllmClass, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    definition = sources.find(owner.module, owner.name)
    for node in definition[1].body if definition and isinstance(definition[1], ast.ClassDef) else []:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


def installed() -> Sources:
    """Return the sources that are installed here."""
    spec = find_spec("vllm")
    assert spec is not None, "no vLLM is installed"
    assert spec.origin is not None
    return Sources(Path(spec.origin).parent)


def fetched(version: str, folder: Path = ENVIRONMENTS / "wheels") -> tuple[str, Sources]:
    """Fetch the wheel of a version such as 0.33, by itself; return its exact version and its sources."""
    wheel = fetched_wheel(version, folder)
    return wheel.name.split("-")[1], Sources(wheel)


def main() -> int:
    """Print what moved, as JSON; return 1 if something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.internals", description=__doc__)
    parser.add_argument("version", nargs="?", help="such as 0.33 or 0.33.0; default: the one that is installed")
    version: str | None = parser.parse_args().version
    exact, sources = fetched(version) if version else ("installed", installed())
    found: dict[str, Any] = vars(moved(sources, installed()))
    print(json.dumps({"version": exact, **found}, indent=1))
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
