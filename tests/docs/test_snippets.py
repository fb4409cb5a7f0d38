"""The Python on a page runs as it is shown, against a fleet with simulated engines."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import PAGES, ROOT
from tests.processes import simulated_service
from tests.summaries import write_rules

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPETS = {str(path.relative_to(ROOT)): found for path in PAGES if (found := BLOCK.findall(path.read_text()))}
"""The blocks of each page that has some, in order: later ones may use names of earlier ones."""

OPTIONS = {
    "docs/guides/stored-responses.md": ["--enable-responses-store"],
    "docs/guides/trajectories.md": ["--enable-trajectories"],
}
"""The coordinator's, on pages that need some."""


@pytest.mark.slow
@pytest.mark.parametrize("page", SNIPPETS)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """But for the server's address; the model writes summaries, but otherwise never ends by itself."""
    replies = ("--sim-replies", str(write_rules(tmp_path / "replies.json")))
    with simulated_service(tmp_path, *replies, coordinator_options=OPTIONS.get(page, [])) as service:
        program = "\n".join(SNIPPETS[page]).replace("http://127.0.0.1:8000", service.url)

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr
