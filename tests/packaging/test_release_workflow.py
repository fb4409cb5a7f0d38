"""The workflow of a release builds what the page says, and only its last job may publish. No test runs it."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]


def run_by(job: str) -> list[str]:
    """Return what a job runs."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_what_is_published_was_built_before() -> None:
    """By another job, which has no right to publish."""
    assert "uv build" in run_by("build")
    assert JOBS["build"]["permissions"] == {"contents": "read"}
    assert JOBS["publish"]["needs"] == "build"
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert run_by("publish")[-1] == "uv publish --trusted-publishing always dist/*.whl dist/*.tar.gz"


def test_the_release_is_built_by_the_images_version_of_uv() -> None:
    """So that a change of one is a change of all."""
    images = [path for path in (ROOT / "deploy" / "images").iterdir() if path.is_file()]
    version = {found for path in images for found in re.findall(r"^ARG UV_VERSION=(\S+)$", path.read_text(), re.M)}

    assert {each for job in JOBS for each in run_by(job) if "uv==" in each} == {
        f"pip install uv=={each}" for each in version
    }
