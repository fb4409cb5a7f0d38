"""Engine arguments mean what they mean to vLLM, and invalid ones are reported."""

import pytest

from tests.lazily import Lazily
from tokenwire.errors import EngineFailed

arguments_read = Lazily("tokenwire.worker.vllm_engine.arguments")
engines = Lazily("tokenwire.worker.vllm_engine.engine")

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-such-argument", "1"], "unrecognized arguments: --no-such-argument"),
        (["--max-model-len", "many"], "--max-model-len"),
        (["--dtype", "float7"], "--dtype"),
        (["--model", "another"], "--model another"),
        (["--skip-tokenizer-init"], "--skip-tokenizer-init"),
        (["--allowed-local-media-path", "/data"], "workers fetch no media"),
        (["--allowed-media-domains", "example.org"], "workers fetch no media"),
    ],
)
async def test_invalid_engine_arguments_are_reported(arguments: list[str], message: str) -> None:
    """An invalid vLLM argument fails the start with vLLM's message, without exiting the process."""
    engine = engines.VllmEngine("a-model", arguments, [])
    with pytest.raises(EngineFailed) as failed:
        await engine.start()
    assert message in failed.value.message
    await engine.stop()


async def test_engine_arguments_reach_vllm() -> None:
    """Arguments are parsed as in vLLM, underscores and dotted JSON included."""
    arguments = ["--max_model_len", "1k", "--override-generation-config.temperature", "0.5", "--enable-lora"]
    parsed = arguments_read.parse_engine_args("a-model", arguments)
    assert (parsed.model, parsed.max_model_len, parsed.enable_lora) == ("a-model", 1000, True)
    assert parsed.override_generation_config == {"temperature": 0.5}
