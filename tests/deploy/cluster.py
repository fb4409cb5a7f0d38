"""Pods as processes with a fake Kubernetes API: each worker has its own address, as pods have, and one port."""

import asyncio
import itertools
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes import FakeKubernetes, endpoint, endpoint_slice
from tests.processes import Process

PORT = 50951
_SERVICE = "workers"


@dataclass(frozen=True, slots=True)
class Pod:
    """One process and its address."""

    name: str
    address: str
    process: Process


class PodCluster:
    """Starts and replaces pods, and updates the fake API of workers as the endpoint controller would."""

    def __init__(self, folder: Path, kubernetes: FakeKubernetes, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._kubernetes = kubernetes
        self._stack = stack
        self._numbers = itertools.count(1)
        self.workers: list[Pod] = []
        self.coordinators: list[Pod] = []
        self.service: list[str] = []
        """URLs of the coordinators to which new connections go: the targets of kube-proxy."""
        account = folder / "account"
        account.mkdir()
        (account / "token").write_text("token")
        (account / "namespace").write_text("llm")
        self._environment = {
            "TOKENWIRE_KUBERNETES_API": kubernetes.url,
            "TOKENWIRE_KUBERNETES_ACCOUNT": str(account),
        }

    async def add_worker(self) -> None:
        """Start a worker and wait until its endpoint is ready."""
        number = next(self._numbers)
        address = f"127.0.1.{number}"
        simulation = ["--engine", "sim", "--sim-step-ms", "30", "--drain-timeout", "30"]
        pod = self._start(f"worker-{number}", address, ["worker", "--listen", f"{address}:{PORT}", *simulation])
        self.workers.append(pod)
        self._publish(unready=pod)
        await asyncio.to_thread(pod.process.wait_for, "ready: ", 60)
        self._publish()

    async def remove_worker(self) -> int:
        """Delete the oldest worker; return its exit code."""
        pod = self.workers.pop(0)
        self._publish(terminating=pod)
        pod.process.popen.terminate()
        code = await asyncio.to_thread(pod.process.wait_exit, 60)
        self._publish()
        return code

    async def add_coordinator(self, *options: str) -> None:
        """Start a coordinator; it joins the service when it has workers."""
        number = next(self._numbers)
        arguments = ["coordinator", "--port", "0", "--cache-dir", str(self._folder / "cache"), *options]
        pod = self._start(f"coordinator-{number}", "", [*arguments, "--worker", f"k8s:llm/{_SERVICE}:grpc"])
        found = await asyncio.to_thread(pod.process.wait_for, r"listening on (http://\S+:\d+)", 60)
        await asyncio.to_thread(pod.process.wait_for, "serving ", 60)
        self.coordinators.append(Pod(pod.name, found[1], pod.process))
        self.service.append(found[1])

    async def remove_coordinator(self, news: Awaitable[None]) -> int:
        """Delete the oldest coordinator: SIGTERM at once, the service is updated later. Return its exit code."""
        pod = self.coordinators.pop(0)
        pod.process.popen.terminate()
        await asyncio.to_thread(pod.process.wait_for, "will stop listening", 30)
        await news
        self.service.remove(pod.address)
        return await asyncio.to_thread(pod.process.wait_exit, 60)

    def _start(self, name: str, address: str, arguments: list[str]) -> Pod:
        process = Process(arguments, self._folder / f"{name}.log", self._environment)
        self._stack.callback(process.stop)
        return Pod(name, address, process)

    def _publish(self, terminating: Pod | None = None, unready: Pod | None = None) -> None:
        endpoints = [endpoint(pod.address, ready=pod is not unready) for pod in self.workers]
        if terminating is not None:
            endpoints.append(endpoint(terminating.address, ready=False, terminating=True))
        self._kubernetes.put(endpoint_slice(f"{_SERVICE}-1", *endpoints, port=PORT))
