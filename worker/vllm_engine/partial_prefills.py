"""vLLM worker extension: keeps seeded requests safe if a CPU engine computes their prompts in several steps."""

from collections.abc import Callable
from typing import Any

from tokenwire.worker.vllm_engine.seeded_rows import draw_unseeded, seeded_draw, use_all_generators


class PartialPrefills:
    """Methods for collective_rpc. Attributes and methods must not clash with vLLM's worker, which inherits them."""

    def tokenwire_keep_generators(self) -> bool:
        """Make seeded requests safe in this process; return whether they are.

        While a prompt is incomplete, vLLM samples for it with the rest of the batch, drops the token and resets the
        request's generator. CPU generators cannot be reset: the engine would die.
        """
        worker: Any = self
        if worker.device.type != "cpu" or worker.vllm_config.use_v2_model_runner:
            return True
        runner = worker.model_runner
        parts = ("sample_tokens", "sampler", "discard_request_mask", "input_batch")
        if not all(hasattr(runner, name) for name in parts) or not hasattr(runner.input_batch, "generators"):
            return False
        use_all_generators(runner.sampler.topk_topp_sampler)
        draw_unseeded(runner.sampler.topk_topp_sampler, worker.vllm_config.model_config.get_vocab_size())
        runner.sample_tokens = without_generators_of_partial_prefills(runner, runner.sample_tokens)
        return True

    def tokenwire_seeded_draw(self) -> str:
        """Return what a seed draws in this process, on its device; empty for a runner that draws otherwise."""
        worker: Any = self
        if worker.vllm_config.use_v2_model_runner:
            return ""
        return f"{worker.device.type} {seeded_draw(worker.model_runner.sampler.topk_topp_sampler, worker.device)}"


def without_generators_of_partial_prefills(runner: Any, sample: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sampling of a step so that tokens to be dropped are drawn with the shared generator."""

    def sample_tokens(*arguments: Any, **named: Any) -> Any:
        generators = runner.input_batch.generators
        partial = runner.discard_request_mask.np
        kept = {row: generators.pop(row) for row in list(generators) if partial[row]}
        try:
            return sample(*arguments, **named)
        finally:
            generators.update(kept)

    return sample_tokens
