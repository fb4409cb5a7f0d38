"""Values for rendering the chart: the examples, and every switch at least once."""

from typing import Any

from tests.deploy.rendering import CHART, example

POOL: dict[str, Any] = {"pool": {"model": "org/model"}}

EXAMPLES = {path.stem: example(path.stem) for path in sorted((CHART / "examples").glob("*.yaml"))}

SWITCHES: dict[str, dict[str, Any]] = {
    "least": {"workers": POOL},
    "only workers elsewhere": {"coordinator": {"extraWorkers": ["10.0.0.7:50051", "dns:gpus.example.com:50051"]}},
    "names": {
        "fullnameOverride": "a-name-that-is-much-longer-than-anybody-needs",
        "imageRegistry": "registry.example.com/mirror/",
        "imagePullSecrets": ["registry"],
        "workers": {"fifteen-letters": {"image": {"digest": "sha256:" + "0" * 64}}},
    },
    "coordinator": {
        "coordinator": {
            "chatTemplate": "{{ messages }}",
            "tls": {"existingSecret": "front-door"},
            "adminKey": {"existingSecret": "admin"},
            "operationsKey": {"existingSecret": "operations", "key": "keys"},
            "service": {"type": "LoadBalancer", "port": 443, "annotations": {"example.com/internal": "true"}},
            "ingress": {"enabled": True},
            "extraEnv": [{"name": "TOKENWIRE_ROUTING", "value": "load"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "podAnnotations": {"example.com/team": "serving"},
            "nodeSelector": {"cpu": "fast"},
            "tolerations": [{"key": "cpu", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
            "topologySpread": False,
            "pdb": {"enabled": False},
            "options": {
                "max-queue": 12_000_000,
                "history-ttl": 0.5,
                "no-request-log": True,
                "log-prompts": False,
                "allowed-host": ["one.example.com", "two.example.com"],
                "default-chat-template-kwargs": '{"enable_thinking": false}',
            },
        },
        "workers": POOL,
        "networkPolicy": {"enabled": False},
    },
    "egress": {
        "coordinator": {
            "options": {"allow-http-media": True, "allowed-media-network": ["10.9.0.0/16"], "max-media-mb": 10},
        },
        "workers": {
            "hub": {"model": "org/model", "options": {"media-processes": 4, "received-media-mb": 512}},
            "offline": {"model": "org/model", "offline": True},
            "files": {"model": "/models/large", "multiNode": {"nodes": 2}},
        },
        "networkPolicy": {
            "egress": {
                "enabled": True,
                "apiServer": ["172.18.0.2/32"],
                "coordinator": [{"to": [{"podSelector": {"matchLabels": {"app": "redis"}}}]}],
                "workers": [{"to": [{"podSelector": {"matchLabels": {"app": "mirror"}}}]}],
            }
        },
    },
    "peer-auth": {
        "peerAuth": {
            "tls": {"enabled": True, "coordinatorSecret": "one", "workerSecret": "two"},
            "token": {"existingSecret": "three"},
        },
        "workers": POOL,
    },
    "issuer": {"peerAuth": {"tls": {"enabled": True, "issuerRef": {"name": "authority"}}}, "workers": POOL},
    "worker": {
        "networkPolicy": {"clients": [{"podSelector": {}}]},
        "monitoring": {"serviceMonitor": True, "labels": {"release": "prometheus"}},
        "workerDefaults": {"runtimeClassName": "nvidia", "readOnlyRootFilesystem": False, "pdb": {"enabled": False}},
        "workers": {
            "simulated": {"engine": "sim", "gpu": {"count": 0}, "kvEvents": False, "options": {"sim-step-ms": 5}},
            "large": {
                "model": "/models/large",
                "multiNode": {"nodes": 4},
                "modelCache": {"type": "pvc", "storageClassName": "fast"},
                "autoscaling": {"enabled": True, "query": "vector(1)"},
                "strategy": {"type": "Recreate", "rollingUpdate": None},
                "extraEnv": [{"name": "NCCL_DEBUG", "value": "WARN"}],
                "extraVolumes": [{"name": "more", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
                "podAnnotations": {"example.com/team": "serving"},
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "high",
            },
        },
    },
}

CASES = {**EXAMPLES, **SWITCHES}
