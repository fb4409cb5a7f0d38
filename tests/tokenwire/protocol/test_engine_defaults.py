"""The defaults are vLLM's."""

import pytest

from tests.lazily import Lazily
from tokenwire.protocol.engine_defaults import ENGINE_DEFAULTS

vllm_sampling = Lazily("vllm.sampling_params")


@pytest.mark.engine
def test_they_are_those_of_vllm() -> None:
    """All that its generation config may set, but for the length of the reply."""
    params = vllm_sampling.SamplingParams()
    assert {name: getattr(params, name) for name in ENGINE_DEFAULTS} == ENGINE_DEFAULTS
