"""The container files: linted, and with podman built, run and stopped."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.ports import free_ports
from tests.processes import wait_healthy

pytestmark = pytest.mark.timeout(1500)  # the first test waits for three builds

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "deploy" / "images"
TOOLS = Path(__file__).parent / "tools"
BASE = os.environ.get("TOKENWIRE_BASE_IMAGE", "localhost/tokenwire-base:trixie")
LARGEST_COORDINATOR = 300e6
_TOOL = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.Containerfile")), ids=lambda path: path.stem)
def test_container_files_follow_the_rules(path: Path) -> None:
    """Hadolint has no findings; the command gets signals directly, and labels describe the image."""
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(ROOT / ".venv" / "bin"))
    if hadolint is None:
        pytest.skip("hadolint comes with the dependency group `deploy`")
    result = subprocess.run([hadolint, str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    text = path.read_text()
    assert "ARG BASE_IMAGE=" in text
    assert 'ENTRYPOINT ["tokenwire"]' in text
    assert "\nUSER 65532:65532\n" in text
    assert ":latest" not in text


def podman(*arguments: str, timeout_s: float = 600) -> str:
    """Run podman; return its output."""
    result = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=timeout_s)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def base() -> str:
    """A base image with Python: the configured one, or one built from Debian's packages."""
    if "TOKENWIRE_BUILD_IMAGES" not in os.environ:
        pytest.skip("images are built by `make deploy-test`")
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    if subprocess.run(["podman", "image", "exists", BASE]).returncode != 0:
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            pytest.skip(f"there is no image {BASE}, and no debootstrap or not the rights to make it")
        subprocess.run([str(TOOLS / "base-image.sh")], check=True, timeout=600)
    return BASE


@pytest.fixture(scope="module")
def built(base: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The images; the GPU worker's on a base without vLLM, which is enough for the simulated engine."""
    settings = tmp_path_factory.mktemp("uv") / "uv.toml"
    settings.write_text("system-certs = true\n")
    authorities = Path("/etc/ssl/certs/ca-certificates.crt")
    mounts = ["--volume", f"{settings}:/etc/uv/uv.toml:ro"]
    for path in (authorities, Path("/etc/pip.conf")):
        if path.exists():
            mounts += ["--volume", f"{path}:{path}:ro"]
    names = {}
    for name, half, options in (
        ("coordinator", "coordinator", []),
        ("coordinator with parsers", "coordinator", ["--build-arg", "PARSERS=1"]),
        ("worker", "worker", []),
    ):
        names[name] = f"localhost/tokenwire-{name.replace(' ', '-')}:test"
        arguments = ["--network=host", "--isolation=chroot", *mounts, "--build-arg", f"BASE_IMAGE={base}", *options]
        file = ["--file", str(IMAGES / f"{half}.Containerfile")]
        podman("build", *arguments, *file, "--tag", names[name], str(ROOT))
    return names


@contextmanager
def contained(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a container as the chart does: not as root, only /tmp is writable, no capabilities."""
    # Debian's crun does not support every kernel's control groups.
    runtime = ["--cgroup-manager=cgroupfs", "--runtime", shutil.which("runc") or "/usr/sbin/runc"]
    limits = ["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1024:1024"]
    locked = ["--read-only", "--tmpfs", "/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    command = ["podman", *runtime, "run", "--rm", "--network=host", *limits, *locked, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


@pytest.mark.slow
def test_images_run_locked_down_and_stop_on_sigterm(built: dict[str, str]) -> None:
    """Both halves serve without root, capabilities or a writable root, and exit 0 on SIGTERM, as process 1."""
    port, worker_port = free_ports(2)
    worker_arguments = ["worker", "--engine=sim", f"--listen=127.0.0.1:{worker_port}", "--health-listen=127.0.0.1:0"]
    coordinator_arguments = ["coordinator", f"--port={port}", f"--worker=127.0.0.1:{worker_port}"]
    with (
        contained(built["worker"], *worker_arguments) as worker,
        contained(built["coordinator"], *coordinator_arguments) as coordinator,
    ):
        url = f"http://127.0.0.1:{port}"
        wait_healthy(url, worker, coordinator)
        answer = httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 3}, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 3
        for process in (coordinator, worker):
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, process.stdout and process.stdout.read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "modules"), [("coordinator", "torch vllm"), ("coordinator with parsers", "torch numpy")]
)
def test_the_coordinators_image_is_small(built: dict[str, str], name: str, modules: str) -> None:
    """It has no torch, and without parsers no vLLM, stays below its size limit, and has labels."""
    (image,) = json.loads(podman("image", "inspect", built[name]))
    assert image["Size"] < LARGEST_COORDINATOR
    assert image["Config"]["User"] == "65532:65532"
    assert image["Config"]["StopSignal"] == "SIGTERM"
    assert image["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    absent = ["torch", "numpy"] + ["vllm"] * (name == "coordinator")
    looks = f"import importlib.util as i; assert not any(map(i.find_spec, {absent}))"
    with contained("--entrypoint=/opt/tokenwire/bin/python", built[name], "-c", looks) as process:
        assert process.wait(30) == 0


@pytest.mark.slow
def test_the_image_with_parsers_serves_tools(built: dict[str, str]) -> None:
    """Read-only and not as root, as the chart runs it."""
    port, worker_port = free_ports(2)
    parsers = ["--tool-call-parser=hermes", "--enable-auto-tool-choice", "--reasoning-parser=qwen3"]
    with (
        contained(built["worker"], "worker", "--engine=sim", f"--listen=127.0.0.1:{worker_port}") as worker,
        contained(
            built["coordinator with parsers"],
            *["coordinator", f"--port={port}", f"--worker=127.0.0.1:{worker_port}", *parsers],
        ) as coordinator,
    ):
        wait_healthy(f"http://127.0.0.1:{port}", worker, coordinator)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "tools": [_TOOL]}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 3
