"""The tool itself, on a module of two functions: it finds what tests miss, and no more."""

import ast
import importlib.util
from pathlib import Path

import pytest

from tests.mutation.__main__ import ROOT, judge_mutants
from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mutants import Mutant, draw_sample, mutants_of
from tests.mutation.parts import JUDGES, LEFT_OUT, MUTATED
from tests.mutation.tree import copy_tree, generate
from tests.mutation.verdicts import Verdicts, verdict_table

MODULE = "tokenwire/small.py"
SOURCE = '''
def larger(one: int, other: int) -> int:
    """Return the larger number."""
    return one if one > other else other


def half(number: int) -> int:
    return number // 2
'''
TESTS = """
from tokenwire.small import half, larger

def test_larger():
    assert larger(1, 2) == larger(2, 1) == 2

def test_half():
    assert half(0) == 0
"""
MUTATED_SOURCE = """
def x_half__mutmut_orig(number):
    log.info("halved")
    return number // 2

def x_half__mutmut_1(number):
    log.info("halved")
    return number // 3

def x_half__mutmut_2(number):
    log.info("XXhalvedXX")
    return number // 2

def x_half__mutmut_3(number):
    log.info(None)
    return number // 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run."""
    return tmp_path / "run"


def mutant(name: str, change: str = "a") -> Mutant:
    """Return a mutant of some module."""
    return Mutant(name, "coordinator/fleet/slots.py", change, "b")


def test_a_mutant_is_known_by_the_lines_that_it_changes(tmp_path: Path) -> None:
    """Those of log lines and of letters are recognized."""
    (tmp_path / "half.py").write_text(MUTATED_SOURCE)

    number, letters, logged = mutants_of(tmp_path, "half.py")

    assert number.name == "half.x_half__mutmut_1"
    assert str(number) == "half.py: return number // 2  ->  return number // 3"
    assert (number.rewords, letters.rewords, logged.rewords) == (False, True, False)
    assert (number.is_logging, logged.is_logging) == (False, True)


def test_samples_are_repeatable_and_as_even_as_the_lines() -> None:
    """A seed gives one sample; 0 is all."""
    mutants = {path: [mutant(f"{path}{number}") for number in range(100)] for path in ("long", "short")}
    lines = {"long": 300, "short": 100}

    first = draw_sample(mutants, lines, 40, seed=1)

    assert sum(each.name.startswith("long") for each in first) == 30
    assert len(first) == 40
    assert first == draw_sample(mutants, lines, 40, seed=1) != draw_sample(mutants, lines, 40, seed=2)
    assert len(draw_sample(mutants, lines, 0, seed=1)) == 200


def test_verdicts_are_kept_until_the_function_is_edited(tmp_path: Path) -> None:
    """The name of a mutant may then be another's."""
    Verdicts(tmp_path / "verdicts").add(mutant("one"), "tests")

    kept = Verdicts(tmp_path / "verdicts")

    assert kept.is_killed(mutant("one"))
    assert not kept.is_killed(mutant("one", "edited"))


def test_the_table_counts_each_mutant_once(tmp_path: Path) -> None:
    """Equivalent ones are not among those that should have been killed."""
    verdicts = Verdicts(tmp_path / "verdicts")
    mutants = [mutant(str(number), str(number)) for number in range(5)]
    for each, by in zip(mutants, ("tests", "tests", "simulation", None, None), strict=True):
        verdicts.add(each, by)  # type: ignore[arg-type]

    rows = verdict_table(mutants, verdicts, {str(mutants[4]): "why"}).splitlines()

    assert rows[2] == "| `coordinator/fleet/slots.py` | 5 | 2 | 1 | 1 | 1 | 75% |"
    assert rows[3] == "| **all** | 5 | 2 | 1 | 1 | 1 | 75% |"


def test_what_is_mutated_and_judges_it_is_there() -> None:
    """As are the lines whose mutants are explained."""
    assert [each for each in (*MUTATED, *JUDGES, *LEFT_OUT) if not (ROOT / each).exists()] == []
    lines = {path: ast.unparse(ast.parse((ROOT / path).read_text())).splitlines() for path in MUTATED}
    sources = {path: " / ".join(map(str.strip, each)) for path, each in lines.items()}
    for change, reason in EQUIVALENT.items():
        path, _, what = change.partition(": ")
        assert what.partition("  ->  ")[0].removeprefix("def ") in sources[path], change
        assert reason


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mutmut") is None, reason="mutmut: the dependency group `mutation`")
def test_tests_kill_what_they_reach_and_check(folder: Path, tmp_path: Path) -> None:
    """`number // 3` of 0 is 0 too: that is what the tool is for."""
    files = {MODULE: SOURCE, "tokenwire/__init__.py": "", "tests/test_small.py": TESTS, "pyproject.toml": ""}
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    (tmp_path / "root" / "proto").mkdir()
    copy_tree(tmp_path / "root", folder, [MODULE], ["tests/test_small.py"])
    generate(folder, 1)
    mutants = mutants_of(folder / "mutants", MODULE)
    verdicts = Verdicts(folder / "verdicts")

    judge_mutants(folder, mutants, verdicts, seeds=0, processes=1)

    survivors = {each.added for each in mutants if not verdicts.is_killed(each)}
    assert survivors == {"return number // 3", "return number / 2", "return one if one >= other else other"}
    assert len(mutants) == 5
