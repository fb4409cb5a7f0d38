"""Invariants of all renderings, for any values.

One file, since every test is one rule over the same list of renderings.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import click
import pytest

from scripts.reference.metrics import core_with_keys, families_of
from tests.deploy.cases import CASES, EXAMPLES, POOL
from tests.deploy.rendering import NAMESPACE, Manifest, of_kind, pod_templates, render
from tokenwire.cli.click_options import build
from tokenwire.cli.coordinator import command as coordinator_command
from tokenwire.cli.worker import command as worker_command
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings

COMMANDS: dict[str, click.Command] = {"coordinator": coordinator_command, "worker": worker_command}


@pytest.fixture(params=CASES)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    """All manifests of some values."""
    return render(CASES[request.param])


def container(template: Manifest) -> Manifest:
    """Return a pod's only container."""
    (only,) = template["spec"]["containers"]
    assert not template["spec"].get("initContainers")
    return dict(only)


def selected(selector: Mapping[str, str], manifests: list[Manifest]) -> set[str]:
    """Return the objects whose pods have all of these labels: name of the object and of the container."""
    found = set()
    for owner in of_kind(manifests, "Deployment", "LeaderWorkerSet"):
        for name, template in pod_templates([owner]):
            if selector.items() <= template["metadata"]["labels"].items():
                found.add(f"{owner['metadata']['name']} {name}")
    return found


def test_selectors_match_only_their_own_pods(manifests: list[Manifest]) -> None:
    """Services, budgets and deployments select the pods of one object, and only those that serve."""
    checked = 0
    for manifest in of_kind(manifests, "Service", "PodDisruptionBudget", "Deployment"):
        selector = manifest["spec"]["selector"]
        own = selected(selector.get("matchLabels", selector), manifests)
        name = manifest["metadata"]["name"].removesuffix("-grpc")
        assert own in ({f"{name} worker"}, {f"{name} coordinator"}), manifest["metadata"]["name"]
        checked += 1
    assert checked >= 2


def test_policies_let_only_coordinators_reach_workers() -> None:
    """A worker's port accepts the release's coordinators, and the other nodes of its engine."""
    manifests = render(EXAMPLES["two-models"])
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")}
    workers = {"tw-tokenwire-small worker", "tw-tokenwire-large worker"}
    policy = policies["tw-tokenwire-worker"]
    assert selected(policy["podSelector"]["matchLabels"], manifests) == workers
    rule, metrics = policy["ingress"]
    assert rule["ports"] == [{"port": "grpc", "protocol": "TCP"}]
    assert metrics["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    (peer,) = rule["from"]
    assert selected(peer["podSelector"]["matchLabels"], manifests) == {"tw-tokenwire coordinator"}
    nodes = policies["tw-tokenwire-large-nodes"]
    both = {"tw-tokenwire-large worker", "tw-tokenwire-large follower"}
    assert selected(nodes["podSelector"]["matchLabels"], manifests) == both
    assert nodes["ingress"] == [{"from": [{"podSelector": nodes["podSelector"]}]}]


def test_every_pod_of_the_release_has_a_policy(manifests: list[Manifest]) -> None:
    """Unless policies are disabled."""
    policies = of_kind(manifests, "NetworkPolicy")
    covered = [selected(policy["spec"]["podSelector"]["matchLabels"], manifests) for policy in policies]
    every = selected({}, manifests)
    assert not policies or set().union(*covered) == every


def test_ports_have_names_that_agree(manifests: list[Manifest]) -> None:
    """Ports of services, routes and policies exist in their pods and services."""
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "Service")}
    ports: dict[str, set[str]] = {}
    for name, template in pod_templates(manifests):
        ports[name] = {port["name"] for port in container(template).get("ports", ())}
    for name, service in services.items():
        kind = "worker" if name.endswith("-grpc") else "coordinator"
        assert {port["targetPort"] for port in service["ports"]} <= ports[kind]
    for route in of_kind(manifests, "HTTPRoute"):
        (backend,) = route["spec"]["rules"][0]["backendRefs"]
        assert backend["port"] in {port["port"] for port in services[backend["name"]]["ports"]}
    for ingress in of_kind(manifests, "Ingress"):
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["port"]["name"] in {port["name"] for port in services[backend["name"]]["ports"]}
    for monitor in of_kind(manifests, "PodMonitor"):
        assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= ports["worker"]
    for policy in of_kind(manifests, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert {port["port"] for port in rule.get("ports", ())} <= set().union(*ports.values())


def test_coordinators_use_existing_services(manifests: list[Manifest]) -> None:
    """Every pool has a headless service, which every coordinator follows by its port's name."""
    pools = {
        f"k8s:{NAMESPACE}/{each['metadata']['name']}:{each['spec']['ports'][0]['name']}"
        for each in of_kind(manifests, "Service")
        if each["spec"].get("clusterIP") == "None"
    }
    (coordinator,) = (each for name, each in pod_templates(manifests) if name == "coordinator")
    sources = [option.removeprefix("--worker=") for option in container(coordinator)["args"] if "--worker=" in option]
    assert {source for source in sources if source.startswith("k8s:")} == pools
    assert sources


def test_names_are_short_enough(manifests: list[Manifest]) -> None:
    """Controllers can append to them, up to 63 characters."""
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
        added = {"Deployment": 17, "LeaderWorkerSet": 14}.get(manifest["kind"], 0)
        assert len(name) + added <= 63, name


def test_grace_periods_are_long_enough(manifests: list[Manifest]) -> None:
    """For the delay before the signal and the drain after it."""
    for name, template in pod_templates(manifests):
        only = container(template)
        sleep = only.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drains = [float(each.partition("=")[2]) for each in only["args"] if each.startswith("--drain-")]
        assert len(drains) == {"coordinator": 2, "worker": 1, "follower": 0}[name]
        assert template["spec"]["terminationGracePeriodSeconds"] > sleep + sum(drains)
        assert (sleep > 0) == (name == "follower")


def test_scaled_objects_have_no_fixed_replicas(manifests: list[Manifest]) -> None:
    """Autoscalers target existing objects, and only these have no replicas."""
    scaled = set()
    for scaler in of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        scaled.add((target["apiVersion"], target["kind"], target["name"]))
    free = {
        (each["apiVersion"], each["kind"], each["metadata"]["name"])
        for each in of_kind(manifests, "Deployment", "LeaderWorkerSet")
        if "replicas" not in each["spec"]
    }
    assert scaled == free


def test_secrets_are_files(manifests: list[Manifest]) -> None:
    """The chart creates none but the key of operations, and none is an argument or a variable: options name mounted
    files."""
    assert {each["metadata"]["name"].rpartition("-operations-key")[2] for each in of_kind(manifests, "Secret")} <= {""}
    for _, template in pod_templates(manifests):
        only = container(template)
        for variable in only.get("env", ()):
            assert "valueFrom" not in variable
            secret = re.search("TOKEN|KEY|SECRET|PASSWORD", variable["name"].removeprefix("TOKENWIRE_"))
            assert secret is None or variable["value"].startswith("/etc/tokenwire/")
        mounted = {mount["mountPath"] for mount in only["volumeMounts"]}
        named = [option.partition("=")[2] for option in only["args"] if "=/etc/tokenwire/" in option]
        assert {path.rpartition("/")[0] for path in named} <= mounted


def test_only_coordinators_get_the_key_of_operations(manifests: list[Manifest]) -> None:
    """The chart's own, or an existing one: a worker that had it could command all others."""
    (option,) = {each for each in _arguments(manifests, "coordinator") if each.startswith("--operations-key-file=")}
    mount, key = option.partition("=")[2].rsplit("/", 1)
    secrets = {each["metadata"]["name"]: each["data"] for each in of_kind(manifests, "Secret")}
    for name, template in pod_templates(manifests):
        volumes = {volume["name"]: volume.get("secret") for volume in template["spec"]["volumes"]}
        mounted = {each["mountPath"]: volumes[each["name"]] for each in container(template)["volumeMounts"]}
        if name == "coordinator":
            named = mounted[mount]["secretName"]
            assert named == "operations" or len(base64.b64decode(secrets[named][key])) >= 32
        else:
            assert mount not in mounted
            assert not any(secret and secret["secretName"] in secrets for secret in volumes.values())


def _arguments(manifests: list[Manifest], component: str) -> list[str]:
    return [
        argument
        for name, template in pod_templates(manifests)
        if name == component
        for argument in container(template)["args"]
    ]


def test_mounts_and_volumes_agree(manifests: list[Manifest]) -> None:
    """Every mount has its volume, every volume is mounted, and nothing else can be written to."""
    for _, template in pod_templates(manifests):
        mounts = container(template)["volumeMounts"]
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in mounts} == volumes.keys()
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        assert not any("hostPath" in volume for volume in volumes.values())


def test_pods_are_restricted(manifests: list[Manifest]) -> None:
    """Pods pass Kubernetes' restricted profile, with a read-only root."""
    for _, template in pod_templates(manifests):
        spec = template["spec"]
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 65532
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = container(template)["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in security
        assert security["readOnlyRootFilesystem"] is True or "runtimeClassName" in spec


def test_permissions_are_minimal(manifests: list[Manifest]) -> None:
    """Coordinators may watch EndpointSlices in their namespace; workers have no account."""
    assert not of_kind(manifests, "ClusterRole", "ClusterRoleBinding")
    (role,) = of_kind(manifests, "Role")
    expected = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    assert role["rules"] == [expected]
    for name, template in pod_templates(manifests):
        assert template["spec"]["automountServiceAccountToken"] is False
        assert ("serviceAccountName" in template["spec"]) == (name == "coordinator")


def test_service_variables_are_disabled(manifests: list[Manifest]) -> None:
    """A service named tokenwire would set TOKENWIRE_PORT, which is an option."""
    assert all(template["spec"]["enableServiceLinks"] is False for _, template in pod_templates(manifests))


def test_images_are_pinned(manifests: list[Manifest]) -> None:
    """Every image has a tag or a digest other than latest."""
    for _, template in pod_templates(manifests):
        image = container(template)["image"]
        assert re.search(r"(:[^:/]+|@sha256:[0-9a-f]{64})$", image)
        assert not image.endswith(":latest")


def test_labels_name_the_chart(manifests: list[Manifest]) -> None:
    """All objects have the chart's version except pods, so that a new chart alone restarts nothing."""
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == NAMESPACE
        assert manifest["metadata"]["labels"]["helm.sh/chart"].startswith("tokenwire-")
    for _, template in pod_templates(manifests):
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & template["metadata"]["labels"].keys()


def options(command: click.Command) -> Iterator[tuple[str, bool]]:
    """Yield the names of a command's options, and whether they are switches."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in parameter.opts:
                yield name, parameter.is_flag


def test_options_exist(manifests: list[Manifest]) -> None:
    """Every option of a container exists in its command, with a value if it needs one."""
    for name, template in pod_templates(manifests):
        if name == "follower":
            continue
        verb, *arguments = container(template)["args"]
        assert verb == name
        known = dict(options(COMMANDS[name]))
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        for argument in own:
            option, equals, _ = argument.partition("=")
            if option.startswith("--"):
                assert option in known, option
                assert known[option] == (not equals), argument
            else:
                assert (name, argument) == ("worker", own[0])


def test_a_new_chat_template_restarts_coordinators() -> None:
    """Otherwise pods would not notice a changed ConfigMap."""

    def annotations(template: str) -> Any:
        manifests = render({"workers": POOL, "coordinator": {"chatTemplate": template}})
        return next(each["metadata"]["annotations"] for _, each in pod_templates(manifests))

    assert annotations("{{ a }}") == annotations("{{ a }}") != annotations("{{ b }}")


def test_a_full_pool_can_be_updated(manifests: list[Manifest]) -> None:
    """Workers are replaced without a spare GPU: the old one is removed first."""
    for manifest in of_kind(manifests, "Deployment"):
        rolling = manifest["spec"]["strategy"].get("rollingUpdate", {})
        if any(name == "worker" for name, _ in pod_templates([manifest])):
            assert rolling["maxSurge"] == 0
            assert rolling["maxUnavailable"] != 0


def test_pools_that_scale_to_zero_keep_their_requests() -> None:
    """Coordinators stay ready without workers, keep the model listed, and queue requests while a worker starts."""
    pool = {"model": "org/model", "autoscaling": {"enabled": True, "minReplicas": 0}, "probes": {"startupMinutes": 20}}
    (coordinator,) = (
        each for name, each in pod_templates(render({"workers": {"pool": pool}})) if name == "coordinator"
    )
    only = container(coordinator)
    assert only["readinessProbe"]["httpGet"]["path"] == "/version"
    assert {"--queue-timeout=1200", "--model-linger=604800", "--expect-model=org/model"} <= {*only["args"]}
    (scaler,) = of_kind(render({"workers": {"pool": pool}}), "ScaledObject")
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    assert 'tokenwire_queue_sequences{namespace="llm",model="org/model"}' in query
    families = {family.name for family in families_of(core_with_keys().observers.metrics.registry)}
    assert set(re.findall(r"tokenwire_\w+", query)) - families == set(), "coordinators export what autoscalers query"
    assert query.count("or vector(0)") == query.count("(sum("), "a series that is missing must not hide the others"
    values = {"workers": {"pool": pool}, "coordinator": {"options": {"queue-timeout": 5, "model-linger": 0}}}
    (coordinator,) = (each for name, each in pod_templates(render(values)) if name == "coordinator")
    assert {"--queue-timeout=5", "--model-linger=0"} <= {*container(coordinator)["args"]}


@pytest.mark.parametrize("options", [{}, {"enable-rl": True}, {"queue-timeout": 700}])
def test_coordinators_keep_their_own_defaults(options: dict[str, object]) -> None:
    """The chart sets neither queue time nor linger unless a value does; pods stay ready longer than that."""
    values = {"workers": POOL, "coordinator": {"options": options}}
    (coordinator,) = (each for name, each in pod_templates(render(values)) if name == "coordinator")
    only = container(coordinator)

    given = {f"--{name}": value for name, value in options.items()}
    rendered = {argument.partition("=")[0] for argument in only["args"]}
    assert {"--queue-timeout", "--model-linger"} & rendered == {"--queue-timeout", "--model-linger"} & given.keys()
    probe = only["readinessProbe"]
    assert probe["httpGet"]["path"] == "/health"
    queue_timeout_s = build(AdmissionSettings, given).queue_timeout_s
    assert queue_timeout_s < probe["periodSeconds"] * probe["failureThreshold"] <= queue_timeout_s + 10


def test_probes_need_no_certificate(manifests: list[Manifest]) -> None:
    """Workers are probed on their health port; startup may take minutes."""
    for name, template in pod_templates(manifests):
        only = container(template)
        if name == "follower":
            continue
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= only.keys()
        if name == "worker":
            assert "--health-listen=0.0.0.0:50052" in only["args"]
            probes = [only[f"{each}Probe"]["grpc"] for each in ("startup", "readiness", "liveness")]
            assert [probe["port"] for probe in probes] == [50052] * 3
            assert [probe["service"] for probe in probes] == ["readiness", "readiness", "liveness"]
            assert only["startupProbe"]["periodSeconds"] * only["startupProbe"]["failureThreshold"] >= 600


def test_nodes_of_an_engine_agree() -> None:
    """Leader and followers start vLLM with the same arguments except their rank."""
    templates = dict(pod_templates(of_kind(render(EXAMPLES["two-models"]), "LeaderWorkerSet")))
    leader = container(templates["worker"])["args"]
    follower = container(templates["follower"])
    assert follower["command"] == ["vllm"]
    assert follower["args"][:3] == ["serve", leader[1], "--headless"]
    own = leader[leader.index("--") + 1 :]
    assert [each.replace("$(LWS_WORKER_INDEX)", "0") for each in follower["args"][3:]] == own
    assert "--node-rank=$(LWS_WORKER_INDEX)" in follower["args"]
    assert {"--nnodes=2", "--node-rank=0", "--master-addr=$(LWS_LEADER_ADDRESS)"} <= {*own}


def test_runbooks_may_be_elsewhere() -> None:
    """Every alert leads to its section of the page that a value names."""
    values = {"monitoring": {"rules": True, "runbook": "https://wiki.example.com/alerts"}, "workers": POOL}
    (rules,) = of_kind(render(values), "PrometheusRule")
    alerts = [each for group in rules["spec"]["groups"] for each in group["rules"] if "alert" in each]

    assert alerts
    for each in alerts:
        assert each["annotations"]["runbook_url"] == f"https://wiki.example.com/alerts#{each['alert'].lower()}"
