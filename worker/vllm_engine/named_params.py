"""vLLM worker extension: receives parameters broadcast one by one over NCCL, as TRL up to 1.10 sends them."""

from typing import Any


class NamedParamUpdates:
    """Methods for collective_rpc. Attributes and methods must not clash with vLLM's worker, which inherits them."""

    tokenwire_communicator: Any = None
    tokenwire_source_rank = 0

    def tokenwire_init_communicator(self, host: str, port: int, world_size: int, rank_offset: int) -> None:
        """Join an NCCL group whose last rank is the trainer."""
        from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
        from vllm.distributed.parallel_state import get_world_group
        from vllm.distributed.utils import StatelessProcessGroup

        if self.tokenwire_communicator is not None:
            raise RuntimeError("The communicator is already initialized: close it first.")
        rank = rank_offset + get_world_group().rank
        group = StatelessProcessGroup.create(host=host, port=port, rank=rank, world_size=world_size)
        worker: Any = self
        self.tokenwire_communicator = PyNcclCommunicator(group, device=worker.device)
        self.tokenwire_source_rank = world_size - 1

    def tokenwire_update_named_param(self, name: str, dtype: str, shape: list[int]) -> None:
        """Receive one parameter and load it into the model."""
        import torch

        if self.tokenwire_communicator is None:
            raise RuntimeError("The communicator is not initialized.")
        worker: Any = self
        values = torch.empty(shape, dtype=getattr(torch, dtype.rpartition(".")[2]), device=worker.device)
        self.tokenwire_communicator.broadcast(values, src=self.tokenwire_source_rank)
        self.tokenwire_communicator.group.barrier()
        worker.model_runner.model.load_weights(weights=[(name, values)])

    def tokenwire_close_communicator(self) -> None:
        """Leave the NCCL group."""
        self.tokenwire_communicator = None


def extension_call(stage: str, arguments: dict[str, Any]) -> tuple[str, tuple[Any, ...]] | None:
    """Return the extension's method and arguments for a transfer stage of this kind, else None."""
    info = arguments.get("init_info") or arguments.get("update_info") or {}
    if stage == "init" and "communicator" in info:
        where = info["communicator"]
        return "tokenwire_init_communicator", (where["host"], where["port"], where["world_size"], info["rank_offset"])
    if stage == "update" and "named_param" in info:
        named = info["named_param"]
        return "tokenwire_update_named_param", (named["name"], named["dtype"], named["shape"])
    if stage == "shutdown" and arguments.get("communicator"):
        return "tokenwire_close_communicator", ()
    return None
