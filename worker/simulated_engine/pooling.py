"""Pooling without a model: the vector of an input is a pure function of its ids and of the engine's seed."""

import math
import random
import struct
from collections.abc import Sequence

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.engine.pool_inputs import inputs_of
from tokenwire.worker.simulated_engine.model import SimulatedModel
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.simulated_engine.simulated_sequence import SimulatedSequence
from tokenwire.worker.simulated_engine.tokens import TokenSource, hash_context, stable_hash

_FORMATS = {"float32": "f", "float16": "e"}
"""Types that the standard library can write."""
_TASKS = {"embed": ("embed", "token_embed"), "classify": ("classify", "token_classify")}
"""All tasks of a model, as in vLLM, by the one that it is for."""


class _Result(TokenSource):
    """Takes the place of a source of tokens, and has none."""

    __slots__ = ()

    def __init__(self, context: int, finish: pb.Finish) -> None:
        self.context, self.finish = context, finish

    def take(self, count: int) -> list[int]:
        """Draw nothing."""
        return []


class PooledInput(SimulatedSequence):
    """An input: it takes the time of its prefill, and ends without a token."""

    __slots__ = ()

    def draw(self) -> None:
        """Have nothing in the step that ends it."""
        self.chunk.append([])


class PoolPlanner:
    """Checks pooling commands against one model, and plans their inputs."""

    def __init__(self, settings: SimulationSettings, model: SimulatedModel) -> None:
        self._settings = settings
        self._model = model
        self.tasks = _TASKS[settings.pooling_task]

    def describe(self) -> pb.PoolingModel:
        """Return what coordinators have to know."""
        width, task = self._settings.embedding_width, self._settings.pooling_task
        if task == "embed":
            return pb.PoolingModel(task=task, score="bi-encoder", truncation_side="right", width=width)
        return pb.PoolingModel(
            task=task,
            score="cross-encoder" if width == 1 else "",
            truncation_side="right",
            width=width,
            labels=[f"class {index}" for index in range(width)],
        )

    def plan(self, pool: pb.Pool, sequences: list[EngineSequence], weights: str = "") -> list[SimulatedSequence]:
        """Return a simulated sequence for each input, under these weights. Raises InvalidRequest."""
        self._check(pool)
        key = stable_hash(weights or self._settings.seed, pool.lora.id)
        scope = stable_hash(pool.cache_salt, pool.lora.id, "pool")
        planned: list[SimulatedSequence] = []
        for sequence, ids in zip(sequences, inputs_of(pool), strict=True):
            self._check_ids(ids)
            context, hashes = hash_context(ids)
            finish = pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=self._result(pool.params, key, context, ids))
            result = _Result(context, finish)
            simulated = PooledInput(sequence, result, len(ids), [block ^ scope for block in hashes], scope)
            simulated.priority, simulated.reads_cache, simulated.started = pool.priority, False, True
            planned.append(simulated)
        return planned

    def _result(self, params: pb.PoolingParams, key: int, context: int, ids: Sequence[int]) -> pb.Pooled:
        width = self._settings.embedding_width
        form = _FORMATS[params.dtype]
        if not params.task.startswith("token_"):
            vector = _vector(stable_hash(key, context), width)
            if params.task == "classify":
                vector = _probabilities(vector)
            return pb.Pooled(shape=[width], data=struct.pack(f"<{width}{form}", *vector))
        rows = [_vector(stable_hash(key, position, token), width) for position, token in enumerate(ids)]
        return pb.Pooled(shape=[len(rows), width], data=b"".join(struct.pack(f"<{width}{form}", *row) for row in rows))

    def _check(self, pool: pb.Pool) -> None:
        params = pool.params
        if params.task not in self.tasks:
            raise InvalidRequest(f"Unsupported task: {params.task!r} Supported tasks: {list(self.tasks)}")
        if params.dtype not in _FORMATS:
            raise InvalidRequest(f"a simulated engine cannot honour embed_dtype {params.dtype}", param="embed_dtype")
        if params.HasField("dimensions"):
            names = self._settings.served_model_names or (self._model.name,)
            raise InvalidRequest(
                f"Model {names[0]!r} does not support Matryoshka embeddings; dimensions must be unset "
                f"(received dimensions={params.dimensions})."
            )

    def _check_ids(self, ids: Sequence[int]) -> None:
        if not ids:
            raise InvalidRequest("The decoder prompt cannot be empty", param="token_ids")
        if len(ids) > self._model.max_model_len:
            raise InvalidRequest(
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of "
                f"{self._model.max_model_len}.",
                param="token_ids",
            )
        if max(ids) > self._model.max_token_id:
            raise InvalidRequest(f"Token id {max(ids)} is out of vocabulary", param="token_ids")


def _vector(seed: int, width: int) -> list[float]:
    """Return a unit vector in a direction of the seed's own."""
    numbers = random.Random(seed)  # noqa: S311 (a simulation)
    values = [numbers.gauss(0.0, 1.0) for _ in range(width)]
    length = math.sqrt(math.fsum(value * value for value in values))
    return [value / length for value in values]


def _probabilities(logits: list[float]) -> list[float]:
    """Return what a classifier makes of a vector: of one class its probability alone."""
    if len(logits) == 1:
        return [1 / (1 + math.exp(-logits[0]))]
    weights = [math.exp(logit) for logit in logits]
    return [weight / sum(weights) for weight in weights]
