"""The extension of vLLM's worker class, of which there can be one, with the methods for collective_rpc."""

import atexit
import gc

from tokenwire.worker.vllm_engine.child_processes import end_with_worker
from tokenwire.worker.vllm_engine.named_params import NamedParamUpdates
from tokenwire.worker.vllm_engine.partial_prefills import PartialPrefills


class WorkerExtension(NamedParamUpdates, PartialPrefills):
    """Methods added to vLLM's worker class."""


WORKER_EXTENSION = f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}"

# Every process that runs the model imports this module.
end_with_worker()
# At its exit Python would otherwise collect garbage several times among the million objects of vLLM and torch, which
# takes seconds, and half a minute on a busy machine.
atexit.register(gc.freeze)
