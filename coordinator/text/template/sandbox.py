"""A Jinja sandbox that bounds the time and memory of templates.

A pass over the syntax tree inserts a deadline check, a tick, into each iteration of loops and the bodies of macros and
blocks. Operations that create large values in one step (joining, repeating, padding) charge their size first.
"""

import threading
from collections.abc import Iterable, Mapping, MutableMapping
from itertools import islice
from time import monotonic
from types import BuiltinMethodType
from typing import Any

from jinja2 import Template, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tokenwire.coordinator.text.template import operation_costs as costs
from tokenwire.coordinator.text.template.budget import Budget, RenderLimits
from tokenwire.coordinator.text.template.filters import BoundedFilters

# Filters that replace + and ~; templates cannot use these names.
_ADD = " add"
_CONCAT = " concat"

_BATCH = 4096


class _Current(threading.local):
    budget: Budget | None = None


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox. Templates from compile_tree may be rendered in several threads at once."""

    intercepted_binops = frozenset(costs.OPERATORS)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._current = _Current()
        bounded = BoundedFilters(self, self)
        self.filters |= bounded.by_name() | {_ADD: self._add, _CONCAT: self._concat}
        self.globals["lipsum"] = bounded.lipsum
        # Jinja's function for joining the output of macros and blocks.
        self.concat = self._join  # type: ignore[method-assign]

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return what a template finds besides its values; a plain dict, which is copied fast for each rendering."""
        return self.globals | dict(d or {})

    def compile_tree(self, tree: nodes.Template) -> Template:
        """Compile a syntax tree, which is modified."""
        return self.from_string(_Instrument().visit(tree))

    def render(self, template: Template, values: Mapping[str, Any], limits: RenderLimits) -> str:
        """Render within limits. Raises TemplateError if they are exceeded, and any error of the template."""
        self._current.budget = Budget(limits)
        try:
            # What template.new_context makes, without the copies in between.
            variables = {**template.globals, **values}
            context = self.context_class(self, variables, template.name, template.blocks, template.globals)
            return self._join(template.root_render_func(context))
        finally:
            self._current.budget = None

    @property
    def budget(self) -> Budget:
        """The budget of the current rendering. Raises outside of one, which prevents constant folding."""
        budget = self._current.budget
        if budget is None:
            raise RuntimeError("nothing is being rendered")
        return budget

    @property
    def tick(self) -> bool:
        """Check the deadline; an attribute, because templates evaluate attributes at the lowest cost."""
        budget = self._current.budget
        if budget is None or monotonic() > budget.began_at + budget.limits.seconds:
            self.budget.tick()
        return True

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something from a template."""
        if type(__obj) is BuiltinMethodType and (cost := costs.METHODS.get(__obj.__name__)):
            if cost is costs.joined_size:
                args = tuple(map(list, args))  # iterators can be consumed only once
            given = {name: value for name, value in kwargs.items() if not name.startswith("_")}  # others are Jinja's
            __self.budget.charge(cost(__obj.__self__, *args, **given))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute binary operators other than +."""
        self.budget.charge(costs.OPERATORS[operator](left, right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        """Return str.format with checked widths, None for anything else."""
        return costs.formatter(self, self, value) if super().wrap_str_format(value) is not None else None

    def _join(self, pieces: Iterable[str]) -> str:
        budget, rest, kept = self.budget, iter(pieces), []
        # In batches, because the output may be endless.
        while batch := list(islice(rest, _BATCH)):
            budget.spent += sum(map(len, batch)) + len(batch)  # inline: macros join thousands of times
            if budget.spent > budget.limits.characters:
                budget.charge(0)
            kept += batch
        return "".join(kept)

    def _concat(self, values: tuple[Any, ...]) -> str:
        return self._join(map(str, values))

    def _add(self, values: tuple[Any, ...]) -> Any:
        size = 0
        for value in values:
            if type(value) is not str:
                return costs.add(self.budget, values)
            size += len(value)
        self.budget.charge(size)
        return "".join(values)


class _Instrument(NodeTransformer):
    """Inserts ticks, and replaces + and ~ with checked filters."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _tick())
        if node.test is not None:
            # Items that the condition rejects never reach the body.
            node.test = nodes.And(nodes.EnvironmentAttribute("tick"), node.test)
        return node

    def visit_body(self, node: nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _tick())
        return node

    visit_Macro = visit_CallBlock = visit_Block = visit_body

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_CONCAT, node.nodes, node.lineno)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        # All of a + b + c at once: one check, and no intermediate sums.
        operands: list[nodes.Expr] = []
        left: nodes.Expr = node
        while isinstance(left, nodes.Add):
            operands.insert(0, self.visit(left.right))
            left = left.left
        return _filter(_ADD, [self.visit(left), *operands], node.lineno)


def _tick() -> nodes.Stmt:
    return nodes.ExprStmt(nodes.EnvironmentAttribute("tick"))


def _filter(name: str, operands: list[nodes.Expr], line: int) -> nodes.Node:
    return nodes.Filter(nodes.Tuple(operands, "load"), name, [], [], None, None).set_lineno(line)
