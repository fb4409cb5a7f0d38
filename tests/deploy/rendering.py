"""Renders the chart; the only module that uses the rendering library."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

helm = pytest.importorskip("helm_python", reason="rendering needs the extra `deploy`")

Manifest = dict[str, Any]

CHART = Path(__file__).parents[2] / "deploy" / "k8s" / "tokenwire"
NAMESPACE = "llm"
TOOLS = Path(__file__).parents[2] / ".venv-deploy"


@functools.cache
def _chart() -> Any:
    return helm.Chart.load(str(CHART))


def chart_error(values: Mapping[str, Any]) -> str:
    """Return the chart's error for invalid values."""
    with pytest.raises(helm.HelmError) as caught:
        _chart().render(dict(values), name="tw", namespace=NAMESPACE)
    return str(caught.value)


def lint_chart(values: Mapping[str, Any]) -> list[str]:
    """Return the warnings and errors of `helm lint`."""
    return [each["error"] for each in helm.lint(str(CHART), dict(values))["messages"] if each["severity"] >= 2]


def render_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return all rendered files by their paths in the chart."""
    texts: dict[str, str] = _chart().render(dict(values), name="tw", namespace=NAMESPACE)
    return {path.removeprefix("tokenwire/templates/"): text for path, text in texts.items()}


def parse_manifests(text: str) -> list[Manifest]:
    """Return the manifests in rendered YAML."""
    return [document for document in yaml.safe_load_all(text) if document]


def render(values: Mapping[str, Any]) -> list[Manifest]:
    """Return all manifests."""
    return [
        each for path, text in render_texts(values).items() if path.endswith(".yaml") for each in parse_manifests(text)
    ]


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    """Return the manifests of some kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def pod_templates(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield every pod template with the name of its container."""
    for manifest in of_kind(manifests, "Deployment", "LeaderWorkerSet"):
        spec = manifest["spec"]
        group = spec.get("leaderWorkerTemplate")
        for template in (group["leaderTemplate"], group["workerTemplate"]) if group else (spec["template"],):
            yield template["spec"]["containers"][0]["name"], template


def example(name: str) -> dict[str, Any]:
    """Return an example's values."""
    values: dict[str, Any] = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    return values
