"""A trainer's process: it holds weights on the GPU and sends them to engines on the same one, as trainers do."""

import base64
import contextlib
import os
import pickle
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

HOST = "127.0.0.1"


class Trainer:
    """Runs the calls of TrainerSide in its process, one after the other."""

    def __init__(self, folders: Mapping[str, Path], environment: Mapping[str, str]) -> None:
        """`folders`: the checkpoints to load, by the name under which they are sent."""
        context = get_context("spawn")
        self._calls, served = context.Pipe()
        arguments = (served, dict(folders), dict(environment))
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        served.close()
        self._begun = 0

    def begin(self, method: str, *arguments: Any) -> None:
        """Begin a call."""
        self._begun += 1
        self._calls.send((self._begun, method, arguments))

    def result(self, timeout_s: float = 60.0) -> Any:
        """Return the result of the last call; others' are dropped. Raises RuntimeError with its error, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self._calls.poll(max(0.0, deadline - time.monotonic())):
            number, value, error = self._calls.recv()
            if number == self._begun:
                if error:
                    raise RuntimeError(f"the trainer failed: {error}")
                return value
        raise TimeoutError(f"the trainer has not returned in {timeout_s:.0f} s")

    def call(self, method: str, *arguments: Any, timeout_s: float = 60.0) -> Any:
        """Make a call."""
        self.begin(method, *arguments)
        return self.result(timeout_s)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def running_trainer(folders: Mapping[str, Path], environment: Mapping[str, str]) -> Iterator[Trainer]:
    """Run a trainer; it has loaded its weights when its first call returns."""
    trainer = Trainer(folders, environment)
    try:
        yield trainer
    finally:
        trainer.stop()


def _serve(calls: Connection, folders: Mapping[str, Path], environment: Mapping[str, str]) -> None:
    os.environ.update(environment)  # NCCL reads it when it starts
    side: TrainerSide | None = None
    with contextlib.suppress(EOFError):
        while True:
            number, method, arguments = calls.recv()
            try:
                side = side or TrainerSide(folders)
                calls.send((number, getattr(side, method)(*arguments), None))
            except Exception as error:
                traceback.print_exc()
                calls.send((number, None, f"{type(error).__name__}: {error}"))


class TrainerSide:
    """What a trainer does on its GPU, the first one."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        from safetensors.torch import load_file

        self._weights: dict[str, dict[str, Any]] = {}
        for label, folder in folders.items():
            self._weights[label] = {}
            for path in sorted(folder.glob("*.safetensors")):
                self._weights[label] |= load_file(path, device="cuda:0")
        self._group: Any = None
        self._named_group: Any = None

    def description(self) -> dict[str, Any]:
        """Return the names and shapes of the weights, as an update announces them."""
        tensors = next(iter(self._weights.values()))
        return {
            "names": list(tensors),
            "dtype_names": [str(tensor.dtype).rpartition(".")[2] for tensor in tensors.values()],
            "shapes": [list(tensor.shape) for tensor in tensors.values()],
        }

    def size(self) -> int:
        """Return the bytes of one set of weights."""
        return sum(tensor.nbytes for tensor in next(iter(self._weights.values())).values())

    # vLLM's NCCL backend: the trainer has rank 0.

    def join(self, port: int) -> None:
        """Form a group with one engine."""
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        group = {"master_address": HOST, "master_port": port, "world_size": 2}
        self._group = NCCLWeightTransferEngine.trainer_init(group)

    def broadcast(self, label: str, packed: bool) -> None:
        """Send all weights to the group."""
        import torch
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        weights = iter(self._weights[label].items())
        NCCLWeightTransferEngine.trainer_send_weights(weights, {"group": self._group, "packed": packed})
        torch.cuda.synchronize()

    # vLLM's IPC backend: the engine opens the trainer's memory.

    def handles(self, label: str) -> str:
        """Return the weights' memory handles as the update takes them over HTTP."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor

        torch.cuda.synchronize()
        device = str(torch.cuda.get_device_properties(0).uuid)
        handles = [{device: reduce_tensor(tensor.contiguous())[1]} for tensor in self._weights[label].values()]
        return base64.b64encode(pickle.dumps(handles)).decode()

    # TRL up to 1.10: the trainer has the last rank and sends one parameter after the other.

    def join_named(self, url: str, port: int) -> None:
        """Open a communicator with one engine, as TRL does."""
        import torch
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
        from vllm.distributed.utils import StatelessProcessGroup

        _post(url, "/init_communicator/", {"host": HOST, "port": port})
        group = StatelessProcessGroup.create(host=HOST, port=port, rank=1, world_size=2)
        self._named_group = PyNcclCommunicator(group, device=torch.device("cuda:0"))

    def send_named(self, url: str, label: str, names: Sequence[str]) -> None:
        """Send some parameters."""
        import torch

        group = self._named_group
        for name in names:
            tensor = self._weights[label][name]
            _post(url, "/update_named_param/", {"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)})
            group.broadcast(tensor, src=1)
            torch.cuda.synchronize()
            group.group.barrier()

    def close_named(self, url: str) -> None:
        """Close the communicator."""
        _post(url, "/close_communicator/", {})
        self._named_group = None


def _post(url: str, path: str, body: dict[str, Any]) -> None:
    response = httpx.post(f"{url}{path}", json=body, timeout=60)
    if response.status_code != 200:
        raise RuntimeError(f"{path} returned {response.status_code}: {response.text}")
