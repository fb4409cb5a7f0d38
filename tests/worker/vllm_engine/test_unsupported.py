"""What of requests and operations an engine cannot serve."""

import pytest

from tests.worker.vllm_engine.test_capabilities import ConfiguredLlm, capabilities, sampling

pytestmark = pytest.mark.engine


async def test_what_cannot_be_served_is_announced() -> None:
    """By how vLLM was started; what it cannot be asked for is not missing."""
    bare = ConfiguredLlm(keeps_generators=False, lora_config=True)
    full = ConfiguredLlm("cuda", lora_config=True, kv_transfer_config=True, weight_transfer_config=True)

    of_bare, of_full = [await capabilities.engine_capabilities(llm) for llm in (bare, full)]

    common = set(of_full.unsupported)
    assert common == set(sampling.unsupported_params())
    assert {*of_bare.unsupported} - common == {
        "seed",
        "kv_transfer_params",
        "prompt_logprobs",
        *({"prompt_logprob_token_ids"} - common),
    }
    assert "weight_transfer" in of_bare.unsupported_operations
    assert {*of_full.unsupported_operations} <= {"weight_transfer.shutdown"}
