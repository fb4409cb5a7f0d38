"""A Jinja sandbox that no template can run in for long, nor fill memory from.

Loops, macros and blocks check the deadline wherever they begin another round: a pass over the syntax tree puts a tick
there. What makes a large value in one step (joining, repeating, padding) pays for its size before it is made.
"""

import threading
from collections.abc import Iterable, Mapping
from itertools import islice
from time import monotonic
from types import BuiltinMethodType
from typing import Any

from jinja2 import Template, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tokenwire.coordinator.text.template import cost_guards as guards
from tokenwire.coordinator.text.template.budget import Budget, RenderLimits
from tokenwire.coordinator.text.template.filters import BoundedFilters

# Filters that the pass puts in place of + and ~; no template can spell these names.
_ADD = " add"
_CONCAT = " concat"

_HANDFUL = 4096


class _Current(threading.local):
    budget: Budget | None = None


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox. Templates from compile_tree may be rendered by several threads at once."""

    intercepted_binops = frozenset(guards.OPERATORS)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._current = _Current()
        bounded = BoundedFilters(self, self)
        self.filters |= bounded.by_name() | {_ADD: self._add, _CONCAT: self._concat}
        self.globals["lipsum"] = bounded.lipsum
        # Jinja joins the output of macros and blocks with this.
        self.concat = self._join  # type: ignore[method-assign]

    def compile_tree(self, tree: nodes.Template) -> Template:
        """Compile a syntax tree, which is changed."""
        return self.from_string(_Instrument().visit(tree))

    def render(self, template: Template, values: Mapping[str, Any], limits: RenderLimits) -> str:
        """Render within limits. Raises TemplateError beyond them, and whatever else the template raises."""
        self._current.budget = Budget(limits, monotonic() + limits.seconds, limits.made)
        try:
            return self._join(template.root_render_func(template.new_context(dict(values))))
        finally:
            self._current.budget = None

    @property
    def budget(self) -> Budget:
        """What is left to the rendering under way. While a template is compiled nothing is, so nothing is folded."""
        budget = self._current.budget
        if budget is None:
            raise RuntimeError("nothing is being rendered")
        return budget

    @property
    def tick(self) -> bool:
        """Check the deadline: an attribute, because that is the cheapest thing that a template can be made to do."""
        budget = self._current.budget
        if budget is None or monotonic() > budget.deadline:
            self.budget.tick()
        return True

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something from a template."""
        if type(__obj) is BuiltinMethodType and (cost := guards.METHODS.get(__obj.__name__)):
            if cost is guards.joined:
                args = tuple(map(list, args))  # an iterator could be counted only once
            given = {name: value for name, value in kwargs.items() if not name.startswith("_")}  # the rest is Jinja's
            __self.budget.charge(cost(__obj.__self__, *args, **given))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what +'s siblings give."""
        self.budget.charge(guards.OPERATORS[operator](left, right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        """Return str.format with checked widths, None for anything else."""
        return guards.formatter(self, self, value) if super().wrap_str_format(value) is not None else None

    def _join(self, pieces: Iterable[str]) -> str:
        budget, rest, kept = self.budget, iter(pieces), []
        # In handfuls: an output that never ends must not be waited for.
        while handful := list(islice(rest, _HANDFUL)):
            budget.left -= sum(map(len, handful)) + len(handful)  # without a call: macros come here by the thousand
            if budget.left < 0:
                budget.charge(0)
            kept += handful
        return "".join(kept)

    def _concat(self, values: tuple[Any, ...]) -> str:
        return self._join(map(str, values))

    def _add(self, values: tuple[Any, ...]) -> Any:
        size = 0
        for value in values:
            if type(value) is not str:
                return guards.add(self.budget, values)
            size += len(value)
        self.budget.charge(size)
        return "".join(values)


class _Instrument(NodeTransformer):
    """Puts ticks where rounds begin, and checked operations in place of + and ~."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _tick())
        if node.test is not None:
            # What the condition turns away never reaches the body.
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
        # All of a + b + c at once: one check, and none of the sums between.
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
