"""Parameters that a trainer broadcasts one by one are received and loaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.worker.vllm_engine.named_params import NamedParamUpdates, extension_call

torch = Lazily("torch")

WHERE = {"host": "10.0.0.1", "port": 5, "world_size": 3}
PARAM = {"name": "lm_head.weight", "dtype": "torch.float32", "shape": [2]}


@pytest.mark.parametrize(
    ("stage", "arguments", "called"),
    [
        (
            "init",
            {"init_info": {"communicator": WHERE, "rank_offset": 1}},
            ("tokenwire_init_communicator", ("10.0.0.1", 5, 3, 1)),
        ),
        (
            "update",
            {"update_info": {"named_param": PARAM}},
            ("tokenwire_update_named_param", ("lm_head.weight", "torch.float32", [2])),
        ),
        ("shutdown", {"communicator": True}, ("tokenwire_close_communicator", ())),
        ("init", {"init_info": {"master_address": "x"}}, None),
        ("update", {"update_info": {"names": []}}, None),
        ("finish", {"update_info": {"named_param": PARAM}}, None),
        ("shutdown", {}, None),
    ],
)
def test_only_stages_of_this_kind_are_the_extensions(
    stage: str, arguments: dict[str, Any], called: tuple[str, tuple[Any, ...]] | None
) -> None:
    """All others are weight transfers of vLLM's own."""
    assert extension_call(stage, arguments) == called


class Communicator:
    """Stands for an NCCL group: broadcasts ones."""

    def __init__(self) -> None:
        self.group = self
        self.barriers = 0
        self.sources: list[int] = []

    def broadcast(self, values: Any, src: int) -> None:
        """Fill the values."""
        self.sources.append(src)
        values.fill_(1)

    def barrier(self) -> None:
        """Count the call."""
        self.barriers += 1


class LoadingWorker(NamedParamUpdates):
    """Stands for vLLM's worker: records which weights the model loads."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.model_runner = SimpleNamespace(model=self)
        self.loaded: dict[str, Any] = {}

    def load_weights(self, weights: list[tuple[str, Any]]) -> None:
        """Record the weights."""
        self.loaded.update(weights)


@pytest.mark.engine
def test_a_parameter_is_received_from_the_trainer_and_loaded() -> None:
    """With its type and shape, from the last rank; and everyone waits for everyone."""
    worker, group = LoadingWorker(), Communicator()
    worker.tokenwire_communicator, worker.tokenwire_source_rank = group, 2

    worker.tokenwire_update_named_param("lm_head.weight", "torch.float16", [2, 3])

    (values,) = worker.loaded.values()
    assert list(worker.loaded) == ["lm_head.weight"]
    assert (values.dtype, values.tolist()) == (torch.float16, [[1.0] * 3] * 2)
    assert (group.sources, group.barriers) == ([2], 1)


@pytest.mark.engine
def test_a_group_is_joined_before_and_left_after() -> None:
    """Without one nothing can be received; a second one needs the first to be closed."""
    worker = LoadingWorker()
    with pytest.raises(RuntimeError, match="not initialized"):
        worker.tokenwire_update_named_param("a", "float32", [1])
    worker.tokenwire_communicator = Communicator()
    with pytest.raises(RuntimeError, match="close it first"):
        worker.tokenwire_init_communicator("10.0.0.1", 5, 3, 1)
    worker.tokenwire_close_communicator()
    assert worker.tokenwire_communicator is None
