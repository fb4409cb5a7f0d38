"""What a chat template that a worker brings may be: compiling a large one stops all other threads, and takes memory."""

from collections.abc import Iterable
from itertools import islice

from jinja2 import TemplateSyntaxError

from tokenwire.coordinator.text.template.jinja import SANDBOX
from tokenwire.errors import InvalidRequest

_MOST_CHARS = 256 * 1024
_MOST_PARTS = 16 * 1024
"""Names, signs and texts of all templates of a model: of 70 real ones, the largest has 3,770."""
_MOST_SEARCHED = 2**30
"""Characters of templates, times added tokens: each is searched for, a second in all."""


def check_templates(sources: Iterable[str], added_tokens: int) -> None:
    """Check the templates of a model together, and with so many added tokens. Raises InvalidRequest."""
    characters = parts = 0
    for source in sources:
        characters += len(source)
        if characters > _MOST_CHARS:
            raise _refusal(f"more than {_MOST_CHARS:,} characters")
        parts += _parts_of(source, _MOST_PARTS + 1 - parts)
        if parts > _MOST_PARTS:
            raise _refusal(f"more than {_MOST_PARTS:,} parts")
    if characters * added_tokens > _MOST_SEARCHED:
        raise _refusal(f"{characters:,} characters, too many for {added_tokens:,} added tokens")


def _parts_of(source: str, most: int) -> int:
    """Return how many parts there are, or the most."""
    try:
        return sum(1 for _ in islice(SANDBOX.lex(source), most))
    except TemplateSyntaxError:
        return 0  # it will not be compiled


def _refusal(what: str) -> InvalidRequest:
    return InvalidRequest(f"The chat templates of the tokenizer have {what}, so it is not used.")
