"""The extension of vLLM's worker class, of which there can be one, with the methods for collective_rpc."""

from tokenwire.worker.vllm_engine.named_params import NamedParamUpdates
from tokenwire.worker.vllm_engine.partial_prefills import PartialPrefills


class WorkerExtension(NamedParamUpdates, PartialPrefills):
    """Methods added to vLLM's worker class."""


EXTENSION = f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}"
