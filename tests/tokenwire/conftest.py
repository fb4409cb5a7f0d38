"""Fixtures of the shared package's and the command line's tests."""

import pytest

from tests.tokenwire.cli.given import HALVES


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of options from the environment."""
    for _, options in HALVES.values():
        for each in options.values():
            monkeypatch.delenv(each.option.environment_variable or "-", raising=False)
