"""Rendered manifests are valid for Kubernetes and its extensions."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.cases import CASES, EXAMPLES
from tests.deploy.rendering import CHART, NAMESPACE, TOOLS, lint_chart, of_kind, render

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs the extra `deploy`")

VERSIONS = [f"1.{minor}" for minor in range(29, 37)]
CUSTOM = {"cert-manager.io", "gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com"}
GROUPS = "leaderworkerset.x-k8s.io/v1"


def group(manifest: dict[str, Any]) -> str:
    """Return the group of its API."""
    return str(manifest["apiVersion"].rpartition("/")[0])


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_valid(name: str) -> None:
    """Every manifest passes the strict schema of the newest version, and all kinds are known."""
    for manifest in render(CASES[name]):
        if group(manifest) not in CUSTOM and manifest["apiVersion"] != GROUPS:
            kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid_in_every_version(version: str) -> None:
    """All features pass the strict schemas of all supported versions."""
    for manifest in render(EXAMPLES["two-models"]) + render(EXAMPLES["one-gpu-pool"]):
        if group(manifest) not in CUSTOM and manifest["apiVersion"] != GROUPS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_groups_of_pods_are_valid() -> None:
    """A LeaderWorkerSet has only known fields, and both of its templates are valid pods."""
    (found,) = of_kind(render(EXAMPLES["two-models"]), "LeaderWorkerSet")
    assert found["apiVersion"] == GROUPS
    spec = found["spec"]
    assert spec.keys() <= {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
    assert spec["rolloutStrategy"].keys() == {"type", "rollingUpdateConfiguration"}
    assert spec["rolloutStrategy"]["rollingUpdateConfiguration"].keys() <= {"maxSurge", "maxUnavailable", "partition"}
    template = spec["leaderWorkerTemplate"]
    assert template.keys() <= {"size", "restartPolicy", "leaderTemplate", "workerTemplate", "subGroupPolicy"}
    for pod in (template["leaderTemplate"], template["workerTemplate"]):
        full = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**pod["metadata"], "name": "pod"}}
        kubernetes_validate.validate(full, VERSIONS[-1], strict=True)


def test_custom_resources_are_valid() -> None:
    """Objects of cert-manager, KEDA, the Gateway API and the Prometheus operator pass the schemas of their CRDs."""
    node = shutil.which("node")
    if node is None or not (TOOLS / "node_modules").is_dir():
        pytest.skip("schemas of custom resources come with `make deploy-test`")
    found = [manifest for values in CASES.values() for manifest in render(values) if group(manifest) in CUSTOM]
    assert {group(manifest) for manifest in found} == CUSTOM
    broken = {**of_kind(found, "ScaledObject")[0], "spec": {"scaleTargetRef": {}}}
    assert len(check_custom(node, [broken])) == 1
    assert check_custom(node, found) == []


def check_custom(node: str, manifests: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is wrong with custom resources."""
    script = Path(__file__).parent / "tools" / "custom_resources.cjs"
    environment = {**os.environ, "NODE_PATH": str(TOOLS / "node_modules")}
    result = subprocess.run(
        [node, script], input=json.dumps(manifests), capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    problems: list[dict[str, str]] = json.loads(result.stdout)
    return problems


@pytest.mark.parametrize("name", CASES)
def test_helm_lint_has_no_findings(name: str) -> None:
    """Neither errors nor warnings."""
    assert lint_chart(CASES[name]) == []


def test_an_old_cluster_gets_no_unsupported_hook(tmp_path: Path) -> None:
    """Kubernetes 1.29 has the field but does not support sleeping before a stop."""
    command = TOOLS / "bin" / "helm"
    if not command.exists():
        pytest.skip("the helm command comes with `make deploy-test`")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(EXAMPLES["two-models"]))
    arguments = ["template", "tw", str(CHART), "--namespace", NAMESPACE, "--values", str(tmp_path / "values.yaml")]

    def rendered(version: str) -> str:
        return subprocess.check_output([str(command), *arguments, "--kube-version", version], text=True)

    assert "preStop:" not in rendered("1.29.0")
    assert rendered("1.30.0").count("preStop:") == 1


def test_queries_of_autoscalers_are_promql(tmp_path: Path) -> None:
    """KEDA's queries parse as PromQL."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    scalers = [each for values in CASES.values() for each in of_kind(render(values), "ScaledObject")]
    queries = [trigger["metadata"]["query"] for scaler in scalers for trigger in scaler["spec"]["triggers"]]
    rules = [{"record": f"query:demand{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    result = subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert len(queries) >= 2
