"""Helm commands of the documents: the chart takes the values that they give it, and can be packaged."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.rendering import CHART, helm, parse_manifests
from tests.docs.commands import ROOT, Command, commands

OPTIONS = argparse.ArgumentParser(exit_on_error=False)
OPTIONS.add_argument("name")
OPTIONS.add_argument("chart", type=Path)
OPTIONS.add_argument("--namespace")
OPTIONS.add_argument("--create-namespace", action="store_true")
OPTIONS.add_argument("--values", type=Path)
OPTIONS.add_argument("--set", action="append", default=[])
OPTIONS.add_argument("--reset-then-reuse-values", action="store_true")
OPTIONS.add_argument("--wait", action="store_true")
OPTIONS.add_argument("--timeout")
INSTALLED = CHART / "examples" / "cpu-demo.yaml"
"""What an upgrade takes its values from."""


def helm_commands(*verbs: str) -> list[Command]:
    """Return helm's commands of these kinds."""
    return [each for each in commands() if each.program == "helm" and each.words[1] in verbs]


def over(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return values with those of `--set` in their places."""
    deeper = {
        key: over(values[key], value)
        for key, value in given.items()
        if isinstance(value, dict) and isinstance(values.get(key), dict)
    }
    return {**values, **given, **deeper}


@pytest.mark.parametrize(
    "command", helm_commands("template", "install", "upgrade"), ids=lambda each: f"{each.page}: {each.normal}"
)
def test_a_command_renders(command: Command) -> None:
    """With its values, from the repository's root or, where the page has gone there, from the chart's directory."""
    given = OPTIONS.parse_args(command.words[2:])
    folder = CHART if given.chart == Path(".") else ROOT
    assert (folder / given.chart).resolve() == CHART
    path = INSTALLED if given.reset_then_reuse_values else folder / given.values
    values = over(helm.values_from_yaml(path.read_text()), helm.parse_set_string(",".join(given.set)))

    rendered = helm.Chart.load(str(CHART)).render(values, name=given.name, namespace=given.namespace)

    registry = values.get("imageRegistry", "")
    images = [
        container["image"]
        for path, text in rendered.items()
        if path.endswith(".yaml")
        for manifest in parse_manifests(text)
        if manifest.get("kind") in ("Deployment", "StatefulSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    ]
    assert images
    assert all(image.startswith(registry) for image in images)


@pytest.mark.parametrize("command", helm_commands("package"), ids=lambda each: each.normal)
def test_the_chart_is_packaged(command: Command, tmp_path: Path) -> None:
    """Into one archive."""
    assert (ROOT / command.words[2]).resolve() == CHART

    assert Path(helm.package(str(CHART), destination=str(tmp_path))).suffix == ".tgz"
