"""Settings with every kind of declaration."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.options import (
    REQUIRED,
    Bounds,
    Option,
    Unit,
    check_bounds,
    option,
    shared,
)


@dataclass(frozen=True, slots=True)
class Inner:
    """Settings within settings."""

    size_bytes: int = option(3 * 2**20, Option("--size-mb", unit=Unit.MiB, bounds=Bounds(at_least=1, at_most=9)))
    again: tuple[str, ...] = shared((), "--name")

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True)
class Outer:
    """Every kind of declaration."""

    names: tuple[str, ...] = option(REQUIRED, Option("--name"))
    inner: Inner = Inner()
    quiet: bool = option(True, Option("--loud"))
    mode: Literal["a", "b"] | None = option(None, Option("--mode"))
    secret: str | None = option(None, Option("--secret-file", path="existing file", contents="secret"))
    token: str | None = option(None, Option("", variable="TOKEN"))
