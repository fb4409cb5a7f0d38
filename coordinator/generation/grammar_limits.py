"""Bounds on grammars: one that a worker would compile for minutes is rejected without involving a worker."""

import json
import re
from typing import Any

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

MAX_GRAMMAR_CHARS = 256 * 1024
"""Of a schema, a grammar, a structural tag, or all choices together."""
MAX_REGEX_CHARS = 32 * 1024
MAX_CHOICES = 10_000
MAX_NESTING = 64
"""Of objects, arrays and groups: vLLM's own limit, which its engine checks too."""
TAG_NESTING = 16
"""Additional levels of a structural tag around a schema."""
MAX_REPETITION = 100_000
_SHOWN_DIGITS = 20
MAX_REPETITIONS = 256
"""Of bounds such as {1,9} and of lengths in schemas."""
MAX_LENGTHS = 16
"""Of lengths and patterns in a schema that differ: an engine takes one to three seconds of CPU time for each, with a
vocabulary of 50 000 tokens, however often it occurs."""

# Parts without groups and repetitions: escapes and classes, in grammars also strings and comments. The patterns do not
# backtrack, because their input is untrusted.
_IN_REGEX = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+\]?", re.DOTALL)
_IN_GRAMMAR = re.compile(_IN_REGEX.pattern + r'|"(?:\\.|[^"\\\n])*+"?|#[^\n]*+', re.DOTALL)
_REPETITION = re.compile(r"\{\s*+(\d*+)\s*+(?:,\s*+(\d*+)\s*+)?\}")
_GROUP = re.compile(r"[()]")
_LENGTHS = frozenset({"minLength", "maxLength", "minProperties", "maxProperties", "pattern"})
_COSTLY_LENGTHS = ("minLength", "maxLength", "pattern")
"""Those that repeat characters; the others repeat what is large already, and cost next to nothing."""
_NO_LENGTHS = repr([None] * len(_COSTLY_LENGTHS))


def check_grammar(outputs: pb.StructuredOutputs) -> None:
    """Check the constraint on a request's output. Raises InvalidRequest."""
    match outputs.WhichOneof("constraint"):
        case "json_schema":
            _check_json("JSON schema", outputs.json_schema, "structured_outputs.json", MAX_NESTING)
        case "structural_tag":
            tag, param = outputs.structural_tag, "structured_outputs.structural_tag"
            _check_json("value of " + param, tag, param, MAX_NESTING + TAG_NESTING)
        case "regex":
            _check_size(len(outputs.regex), MAX_REGEX_CHARS, "structured_outputs.regex")
            _check_expression(_IN_REGEX.sub("_", outputs.regex), "structured_outputs.regex")
        case "grammar":
            _check_size(len(outputs.grammar), MAX_GRAMMAR_CHARS, "structured_outputs.grammar")
            _check_expression(_IN_GRAMMAR.sub("_", outputs.grammar), "structured_outputs.grammar")
        case "choice":
            _check_choices(outputs.choice.values)
    _check_size(len(outputs.whitespace_pattern), MAX_REGEX_CHARS, "structured_outputs.whitespace_pattern")


def _check_choices(choices: Any) -> None:
    if len(choices) > MAX_CHOICES:
        raise _rejection("structured_outputs.choice", f"has {len(choices)} choices, more than {MAX_CHOICES}")
    _check_size(sum(map(len, choices)), MAX_GRAMMAR_CHARS, "structured_outputs.choice")


def _check_size(size: int, limit: int, param: str) -> None:
    if size > limit:
        raise _rejection(param, f"has {size} characters, more than {limit}")


def _check_json(what: str, text: str, param: str, nesting: int) -> None:
    _check_size(len(text), MAX_GRAMMAR_CHARS, param)
    too_deep = f"The {what} is nested too deeply: objects and arrays may nest at most {nesting} levels"  # as in vLLM
    try:
        root = json.loads(text)
    except RecursionError as error:
        raise InvalidRequest(too_deep, param=param) from error
    except ValueError:
        return  # the engine's own error describes it
    level, repetitions, resolved, lengths = [root], 0, set[str](), set[str]()
    for _ in range(nesting):
        for node in level:
            if isinstance(node, dict):
                repetitions += _count_repetitions(node, param)
                lengths.add(repr([node.get(name) for name in _COSTLY_LENGTHS]))
                lengths.update(_patterns_of_names(node))
                _check_reference(node, root, resolved, param)
                _check_triggers(node, param)
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
    if level:
        raise InvalidRequest(too_deep, param=param)
    _check_repetitions(repetitions, param)
    if (different := len(lengths - {_NO_LENGTHS})) > MAX_LENGTHS:
        raise _rejection(param, f"has {different} different lengths or patterns of strings, more than {MAX_LENGTHS}")


def _check_reference(node: dict[str, Any], root: Any, resolved: set[str], param: str) -> None:
    """Check that a reference is not circular: engines turn a circle into a grammar that allows nothing.

    `resolved` has the references that are known not to be; this one is added.
    """
    passed: set[str] = set()
    target: Any = node
    while isinstance(target, dict) and isinstance(reference := target.get("$ref"), str) and reference not in resolved:
        if reference in passed:
            raise _rejection(param, f"has a $ref that leads back to itself: {reference[:100]}")
        passed.add(reference)
        target = _resolve(root, reference)
    resolved |= passed


def _resolve(root: Any, reference: str) -> Any:
    """Return the target of a reference within a schema; None if there is none."""
    target, (document, *path) = root, reference.split("/")
    for step in path if document == "#" else ("elsewhere",):
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def _check_triggers(node: dict[str, Any], param: str) -> None:
    """Check the triggers of a structural tag: vLLM 0.32 reports an empty one as an internal error."""
    triggers = node.get("triggers")
    if param.endswith("structural_tag") and isinstance(triggers, list) and "" in triggers:
        raise _rejection(param, "has an empty trigger")


def _children(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _count_repetitions(schema: dict[str, Any], param: str) -> int:
    pattern, of_names = schema.get("pattern"), _patterns_of_names(schema)
    for each in (*([pattern] if isinstance(pattern, str) else []), *of_names):
        _check_size(len(each), MAX_REGEX_CHARS, f"{param} (pattern)")
        _check_expression(_IN_REGEX.sub("_", each), f"{param} (pattern)")
    return len(_LENGTHS.intersection(schema)) + len(of_names)


def _patterns_of_names(schema: dict[str, Any]) -> list[str]:
    """Return the patterns of the names of properties."""
    found = schema.get("patternProperties")
    return [*found] if isinstance(found, dict) else []


def _check_expression(bare: str, param: str) -> None:
    """Check groups and repetitions of a regular expression or of a grammar."""
    depth = 0
    for sign in _GROUP.findall(bare):
        depth += 1 if sign == "(" else -1
        if depth > MAX_NESTING:
            raise _rejection(param, f"is nested too deeply: groups may nest at most {MAX_NESTING} levels")
    bounds = _REPETITION.findall(bare)
    for number in (number.lstrip("0") for pair in bounds for number in pair):
        if len(number) > len(str(MAX_REPETITION)) or int(number or 0) > MAX_REPETITION:
            asked = number if len(number) <= _SHOWN_DIGITS else f"{number[:_SHOWN_DIGITS]}..."
            raise _rejection(param, f"repeats something {asked} times, more than {MAX_REPETITION}")
    _check_repetitions(len(bounds), param)


def _check_repetitions(count: int, param: str) -> None:
    if count > MAX_REPETITIONS:
        raise _rejection(param, f"bounds lengths and repetitions {count} times, more often than {MAX_REPETITIONS}")


def _rejection(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"The value of {param} {what}.", param=param.partition(" ")[0])
