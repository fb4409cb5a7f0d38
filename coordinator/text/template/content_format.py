"""Detects from a template's syntax tree whether it expects message content as a string or as a list of parts."""

from collections.abc import Iterator
from typing import Literal

from jinja2 import nodes

ContentFormat = Literal["string", "openai"]


class _Unclear(Exception):
    """The template uses a construct that the analysis does not support."""


def detect(tree: nodes.Template) -> ContentFormat:
    """Return "openai" if the template loops over a message's content, else "string".

    Matches vLLM's detection: scopes are ignored, and an unclear template counts as "string".
    """
    try:
        lists = _aliases(tree, "messages")
        messages = {_name(loop.target) for loop in tree.find_all(nodes.For) if _variable(loop.iter) in lists}
        return "openai" if any(_content_loops(tree, messages)) else "string"
    except _Unclear:
        return "string"


def _core(node: nodes.Node | None) -> nodes.Node | None:
    # Strips filters, tests and slices, which mostly keep a list a list.
    while True:
        if isinstance(node, nodes.Filter | nodes.Test) or (
            isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        ):
            node = node.node
        else:
            return node


def _variable(node: nodes.Node | None) -> str | None:
    core = _core(node)
    return core.name if isinstance(core, nodes.Name) and core.ctx == "load" else None


def _content_owner(node: nodes.Node) -> str | None:
    """Return x for x.content and x["content"]."""
    core = _core(node)
    if isinstance(core, nodes.Getitem):
        key = core.arg.value if isinstance(core.arg, nodes.Const) else None
    elif isinstance(core, nodes.Getattr):
        key = core.attr
    else:
        return None
    owner = core.node
    return owner.name if key == "content" and isinstance(owner, nodes.Name) and owner.ctx == "load" else None


def _name(target: nodes.Node) -> str:
    if isinstance(target, nodes.Name):
        return target.name
    raise _Unclear


def _aliases(tree: nodes.Template, name: str) -> set[str]:
    """Return the variable and all variables that it is assigned to, directly or not."""
    found = {name}
    queue = [name]
    for known in queue:  # grows during the loop
        for assign in tree.find_all(nodes.Assign):
            if _variable(assign.node) == known and (alias := _name(assign.target)) not in found:
                found.add(alias)
                queue.append(alias)
    return found


def _content_loops(tree: nodes.Template, messages: set[str]) -> Iterator[bool]:
    in_macros: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        parameters = _content_parameters(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            in_macros.setdefault(id(loop), set()).update(parameters)
    for loop in tree.find_all(nodes.For):
        names = in_macros.get(id(loop), {"content"})
        if _content_owner(loop.iter) in messages or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names):
            _name(loop.target)
            yield True


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """Return the macro's parameters to which some call passes a message's content."""
    names = [argument.name for argument in macro.args]
    found = set()
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        given = [*zip(names, call.args, strict=False), *((kw.key, kw.value) for kw in call.kwargs if kw.key in names)]
        found |= {name for name, value in given if _content_owner(value) in messages}
    return found
