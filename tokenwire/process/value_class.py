"""Classes of values that nobody changes: type checkers enforce it, and nothing at run time."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Make a dataclass with slots. For what each request makes: a frozen one takes several times as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
