"""Tests that are skipped for what the machine should have had: continuous integration fails for them."""

import os
import re
from collections import Counter

import pytest

# Container tools are the machine's own affair; these come with `make setup` and a network.
_MISSING = re.compile(r"could not import|cannot be (fetched|made)|npm is not installed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was missing, and how many tests that cost."""
    for reason, count in _missing(terminalreporter).items():
        verdict = "failed, as CI is set" if os.environ.get("CI") else "would fail with CI=true"
        terminalreporter.write_line(f"{count} skipped, {verdict}: {reason}", yellow=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a run in continuous integration fail where anything was missing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and _missing(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _missing(reporter: pytest.TerminalReporter) -> Counter[str]:
    reasons = [report.longrepr[2] for report in reporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    return Counter(reason for reason in reasons if _MISSING.search(reason))
