"""Compiles chat templates in a sandbox like that of transformers, and analyzes them."""

import time
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from tokenwire.coordinator.text.template.content_format import ContentFormat, detect
from tokenwire.coordinator.text.template.sandbox import BoundedEnvironment
from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template, ready to render."""

    source: str
    template: Template
    variables: frozenset[str]
    """The template's undeclared variables."""
    content_format: ContentFormat
    handles_developer: bool
    """Whether the template has a case for the role "developer"."""


@lru_cache(maxsize=64)
def compile_template(source: str) -> CompiledTemplate:
    """Compile a template, once per source. Raises InvalidRequest if it is invalid."""
    try:
        tree = SANDBOX.parse(source)
        variables, content_format = frozenset(meta.find_undeclared_variables(tree)), detect(tree)
        template = SANDBOX.compile_tree(tree)
    except TemplateSyntaxError as error:
        raise InvalidRequest(
            f"The chat template does not parse: {error.message} (line {error.lineno}).", param="chat_template"
        ) from error
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        # Accepted by Jinja but not by Python: too deeply nested expressions or loops, too long numbers.
        raise InvalidRequest(f"The chat template cannot be compiled: {error}", param="chat_template") from error
    handles_developer = "'developer'" in source or '"developer"' in source
    return CompiledTemplate(source, template, variables, content_format, handles_developer)


class _Generation(Extension):
    """{% generation %} marks the model's output for training; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012, declared so by Extension

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.fromtimestamp(time.time()).strftime(form)


def _environment() -> BoundedEnvironment:
    # No autoescaping: prompts are not HTML.
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


SANDBOX = _environment()
"""Compiles and renders all templates."""
