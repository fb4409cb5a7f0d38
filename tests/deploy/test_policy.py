"""A policy checker has only deliberate findings in the examples."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.cases import EXAMPLES
from tests.deploy.rendering import NAMESPACE, TOOLS, Manifest, of_kind, pod_templates, render

ON_PURPOSE = {
    "CKV_K8S_11": "no CPU limits: throttling shows as gaps in streams",
    "CKV_K8S_15": "images are not pulled always: tags are fixed, and a pod should start without a registry",
    "CKV_K8S_43": "tags, not digests: a value names the digest where somebody has built one",
}


def as_pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return leaders of groups as pods: the checker does not support groups. Followers have no port to probe."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": NAMESPACE},
            "spec": template["spec"],
        }
        for name, template in pod_templates(of_kind(manifests, "LeaderWorkerSet"))
        if name == "worker"
    ]


@pytest.mark.slow
def test_checkov_finds_only_deliberate_exceptions(tmp_path: Path) -> None:
    """Each exception has a reason and is still needed."""
    command = TOOLS / "bin" / "checkov"
    if not command.exists():
        pytest.skip("checkov comes with `make deploy-test`")
    for name, values in EXAMPLES.items():
        manifests = render(values)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all([*manifests, *as_pods(manifests)]))
    arguments = [
        "--framework",
        "kubernetes",
        "--directory",
        str(tmp_path),
        "--compact",
        "--skip-download",
        "-o",
        "json",
    ]
    result = subprocess.run([command, *arguments], capture_output=True, text=True)
    report = json.loads(result.stdout)
    failed = {(check["check_id"], check["check_name"]) for check in report["results"]["failed_checks"]}
    assert {identifier for identifier, _ in failed} == ON_PURPOSE.keys(), failed
    assert report["summary"]["passed"] > 500
