"""Modules that are imported when a test uses them."""

import pytest

from tests.lazily import Lazily


def test_a_missing_package_skips_the_test() -> None:
    """Whether the module is of it or only needs it."""
    with pytest.raises(pytest.skip.Exception, match="could not import no_such_package"):
        _ = Lazily("no_such_package.module").something


def test_a_missing_module_of_ours_fails_the_test() -> None:
    """It moved, and an import of it still has the old name."""
    with pytest.raises(ModuleNotFoundError):
        _ = Lazily("tokenwire.no_such_module").something
