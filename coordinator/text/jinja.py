"""The sandbox that chat templates run in, as transformers defines it, and what is known of each template."""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from coordinator.text.content_format import ContentFormat, detect
from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template, ready to render."""

    source: str
    template: Template
    variables: frozenset[str]
    """Names that the template takes from outside."""
    content_format: ContentFormat

    @property
    def knows_developer(self) -> bool:
        """Whether the template has a case for the role "developer"."""
        return "'developer'" in self.source or '"developer"' in self.source


@lru_cache(maxsize=64)
def compile_template(source: str) -> CompiledTemplate:
    """Compile a template, once per source. Raises InvalidRequest where its syntax is wrong."""
    try:
        tree = _ENVIRONMENT.parse(source)
        template = _ENVIRONMENT.from_string(source)
    except TemplateSyntaxError as error:
        raise InvalidRequest(
            f"The chat template does not parse: {error.message} (line {error.lineno}).", param="chat_template"
        ) from error
    return CompiledTemplate(source, template, frozenset(meta.find_undeclared_variables(tree)), detect(tree))


class _Generation(Extension):
    """{% generation %} marks what the model wrote, for training; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012, declared so by Extension

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which models were not trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> ImmutableSandboxedEnvironment:
    # No autoescaping: what is rendered is a prompt, not HTML.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


_ENVIRONMENT = _environment()
