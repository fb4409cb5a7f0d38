"""Commands of the documents that no test runs as they stand, as whole commands, by the reason why not."""

NOT_RUN = {
    "fetches vLLM for GPUs; tests/packaging resolves the package and its extras": (
        "pip install '.[worker]'",
        "pip install .",
        "pip install 'tokenwire[worker]'",
        "pip install tokenwire",
        "pip install '.[parsers]'",
    ),
    "fetches vLLM for CPUs; tests/packaging compares the extra with what a checkout installs": (
        "pip install --extra-index-url https://download.pytorch.org/whl/cpu '.[cpu]'",
        "uv pip install --torch-backend cpu '.[cpu]'",
    ),
    "makes an environment in the home folder": (
        "python3 -m venv ~/tokenwire",
        ". ~/tokenwire/bin/activate",
    ),
    "builds a wheel first; tests/packaging runs it with a wheel, and the command for a chat that it prints": (
        "uvx --from . tokenwire serve --engine sim",
    ),
    "makes an installation in /opt": (
        "python3 -m venv /opt/tokenwire",
        "/opt/tokenwire/bin/pip install '.[worker]'",
    ),
    "needs systemd as PID 1; tests/deploy/test_systemd.py checks the units": (
        "install -m 644 deploy/systemd/tokenwire-coordinator.service deploy/systemd/tokenwire-worker@.service "
        "/etc/systemd/system/",
        "install -d -m 700 /etc/tokenwire",
        "systemctl enable --now tokenwire-worker@0 tokenwire-coordinator",
        "systemctl status tokenwire-coordinator",
        "systemctl restart tokenwire-worker@0",
    ),
    "`make deploy-test` builds the images and starts them": (
        "podman build -f deploy/images/coordinator.Containerfile -t registry.example.com/tokenwire/coordinator:0.1.0 .",
        "podman build -f deploy/images/worker.Containerfile -t registry.example.com/tokenwire/worker:0.1.0 .",
        "podman build -f deploy/images/worker-cpu.Containerfile -t registry.example.com/tokenwire/worker-cpu:0.1.0 .",
        "podman compose -f deploy/compose.yaml up --build --detach",
        "podman compose -f deploy/compose.yaml ps",
        "MODEL=Qwen/Qwen3-8B podman compose -f deploy/compose.yaml -f deploy/compose-gpu.yaml up --build --detach",
    ),
    "needs a registry": (
        "podman push registry.example.com/tokenwire/coordinator:0.1.0",
        "podman push registry.example.com/tokenwire/worker-cpu:0.1.0",
    ),
    "rendered by tests/deploy": (
        "helm template demo deploy/k8s/tokenwire --values deploy/k8s/tokenwire/examples/two-models.yaml",
        "helm template demo deploy/k8s/tokenwire --values deploy/k8s/tokenwire/examples/cpu-demo.yaml "
        "--set imageRegistry=registry.example.com",
    ),
    "needs a cluster; tests/deploy renders the chart": (
        "helm install demo deploy/k8s/tokenwire --namespace llm --create-namespace "
        "--values deploy/k8s/tokenwire/examples/cpu-demo.yaml --set imageRegistry=registry.example.com",
        "helm install demo . --namespace llm --create-namespace --values examples/cpu-demo.yaml "
        "--set imageRegistry=registry.example.com",
        "helm upgrade demo deploy/k8s/tokenwire --namespace llm --reset-then-reuse-values",
        "helm rollback demo --namespace llm --wait",
        "kubectl create namespace llm",
        "kubectl --namespace llm create secret generic tokenwire-keys --from-file=api-keys",
        "kubectl --namespace llm create secret generic tokenwire-admin "
        '--from-literal=admin-key="$(openssl rand -hex 32)"',
        "kubectl --namespace llm create secret generic hub --from-file=token",
        "kubectl logs deployment/RELEASE-tokenwire",
        "kubectl logs --previous",
        "kubectl --namespace llm get pods --watch",
        "helm upgrade demo deploy/k8s/tokenwire --namespace llm --reset-then-reuse-values "
        "--set coordinator.replicas=2 --set workers.demo.replicas=2 --wait --timeout 15m",
        "helm upgrade demo deploy/k8s/tokenwire --namespace llm --reset-then-reuse-values "
        "--set coordinator.image.tag= --set workerDefaults.image.tag=",
        "kubectl --namespace llm get pods --selector app.kubernetes.io/component=worker",
        "kubectl --namespace llm delete pod NAME",
    ),
    "tests/monitoring checks the configuration": (
        "promtool check config deploy/prometheus.yml",
        "prometheus --config.file=deploy/prometheus.yml --storage.tsdb.path=/var/lib/prometheus/tokenwire",
    ),
    "a load test of minutes, of a model for GPUs": (
        'vllm serve Qwen/Qwen3-8B --port 8000 --api-key "$KEY" --max-model-len 32768 --tensor-parallel-size 2',
        "vllm bench serve --base-url http://127.0.0.1:8000 --backend openai-chat --endpoint /v1/chat/completions "
        "--model Qwen/Qwen3-8B --dataset-name random --random-input-len 512 --random-output-len 128 --ignore-eos "
        "--num-prompts 64 --max-concurrency 16",
        "aiperf profile --url http://127.0.0.1:8000 --endpoint-type chat --streaming --model Qwen/Qwen3-8B "
        "--concurrency 16 --request-count 64 --isl 512 --osl 128 --extra-inputs ignore_eos:true "
        "--use-server-token-count",
        "vllm bench serve",
        "pip install aiperf",
    ),
    "tests/e2e runs a plain vLLM server as a worker": ("vllm serve MODEL --enable-scale-out --port 8000",),
    "a node of an engine over several": ("vllm serve --headless",),
    "the machine's own package": ("apt-get install prometheus",),
    "run by `make conformance`": (
        "codex -m Qwen/Qwen3-8B",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:8000 ANTHROPIC_AUTH_TOKEN=unused claude --model Qwen/Qwen3-8B",
    ),
    "tests/e2e and `make faults` kill workers by their pid": ("pkill -9 -f 'listen 127.0.0.1:50051'",),
    "a step of a release; tests/packaging builds wheel and sdist, tests/deploy images and chart": (
        ".venv/bin/uv build",
        "for name in coordinator worker worker-cpu; do",
        "done",
        "helm package deploy/k8s/tokenwire --destination dist",
        "podman build -f deploy/images/coordinator.Containerfile --build-arg VERSION=VERSION "
        "-t tokenwire/coordinator:VERSION .",
        "podman build -f deploy/images/worker.Containerfile --build-arg VERSION=VERSION -t tokenwire/worker:VERSION .",
        "podman build -f deploy/images/worker-cpu.Containerfile --build-arg VERSION=VERSION "
        "-t tokenwire/worker-cpu:VERSION .",
        ".venv/bin/uv venv dist/env",
        ".venv/bin/uv pip install --python dist/env/bin/python dist/tokenwire-VERSION-py3-none-any.whl",
        ".venv/bin/uvx --from cyclonedx-bom cyclonedx-py environment --pyproject pyproject.toml --output-reproducible "
        "--output-file dist/tokenwire-VERSION.cdx.json dist/env/bin/python",
        "podman run --rm --entrypoint python3 tokenwire/$name:VERSION -c "
        "\"import importlib.metadata as m; print(*{f'{each.name}=={each.version}' for each in m.distributions()}, "
        "sep='\\n')\" | .venv/bin/uvx --from cyclonedx-bom cyclonedx-py requirements --output-reproducible "
        "--output-file dist/$name-VERSION.cdx.json -",
        "rm -r dist/env",
        "podman push --digestfile dist/coordinator.digest tokenwire/coordinator:VERSION "
        "docker://REGISTRY/tokenwire/coordinator:VERSION",
        "podman push --digestfile dist/worker.digest tokenwire/worker:VERSION "
        "docker://REGISTRY/tokenwire/worker:VERSION",
        "podman push --digestfile dist/worker-cpu.digest tokenwire/worker-cpu:VERSION "
        "docker://REGISTRY/tokenwire/worker-cpu:VERSION",
        "helm push dist/tokenwire-VERSION.tgz oci://REGISTRY/tokenwire/charts",
        "cd dist",
        "sha256sum *.whl *.tar.gz *.tgz *.cdx.json *.digest > SHA256SUMS",
    ),
}
