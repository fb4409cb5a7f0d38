"""A simulated engine's model: the built-in tokenizer, or the files of a directory."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from tests.worker.simulated_engine.simulation import EOS, simulation
from tokenwire.worker.simulated_engine.engine import SimulationSettings


async def test_text_is_printable() -> None:
    """Seeded tokens decode to printable text, with no special token among them."""
    async with simulation() as sim:
        ids = (await sim.run(max_tokens=500)).ids
        tokenizer = Tokenizer.from_buffer(sim.engine.tokenizer_files()["tokenizer.json"])
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text.isprintable()
    assert len(text) == 500
    assert len(set(ids)) > 60


async def test_the_builtin_tokenizer_has_one_id_per_byte() -> None:
    """The built-in tokenizer maps each byte to its own id, and has the ChatML tokens."""
    async with simulation() as sim:
        files = sim.engine.tokenizer_files()
        model = sim.engine.describe()
    tokenizer = Tokenizer.from_buffer(files["tokenizer.json"])
    assert tokenizer.encode("<|im_start|>aé\n<|im_end|>").ids == [257, 0x61, 0xC3, 0xA9, 0x0A, EOS]
    assert tokenizer.decode(list("naïve 🙂".encode())) == "naïve 🙂"
    assert "<|im_start|>" in json.loads(files["tokenizer_config.json"])["chat_template"]
    assert (model.max_token_id, model.max_model_len, list(model.names)) == (258, 32768, ["simulated"])


async def test_a_model_directory_is_read(tmp_path: Path) -> None:
    """A model's own tokenizer files are served, and its limits, stop ids and sampling defaults are kept."""
    async with simulation() as sim:
        files = sim.engine.tokenizer_files()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512, "vocab_size": 300}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [258, 65], "temperature": 0.6}')
    async with simulation(SimulationSettings(step_ms=0, model_dir=tmp_path)) as sim:
        model = sim.engine.describe()
        assert sim.engine.tokenizer_files().keys() == {*files, "generation_config.json"}
        result = await sim.run(max_tokens=None)
    assert (model.max_token_id, model.max_model_len, list(model.names)) == (299, 512, [tmp_path.name])
    assert json.loads(model.default_sampling_params_json) == {"temperature": 0.6}
    assert (result.ids[-1], result.finish.stop_token_id) == (65, 65)
