"""The extension of vLLM's worker class, of which there can be one: all that is called by collective_rpc."""

from tokenwire.worker.vllm_engine.named_params import NamedParamUpdates
from tokenwire.worker.vllm_engine.partial_prefills import PartialPrefills


class WorkerExtension(NamedParamUpdates, PartialPrefills):
    """What vLLM's worker class gets beside its own methods."""


EXTENSION = f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}"
