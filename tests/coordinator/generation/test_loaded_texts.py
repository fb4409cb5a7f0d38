"""A tokenizer and its template are loaded once for all models with the same ones."""

from pathlib import Path

from tokenwire.coordinator.generation.loaded_texts import TextsLoader
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.model import load_model

FILES = load_model(None, None).files
INFO = pb.Model(names=["m"], tokenizer_digest=tokenizer_digest(FILES))


class Fetches:
    """Counts how often the files were fetched."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> dict[str, bytes]:
        """Return them."""
        self.count += 1
        return FILES


async def test_other_weights_share_a_tokenizer() -> None:
    """It is one object; with another digest it is another."""
    loader, fetch = TextsLoader(CoordinatorSettings(workers=("nowhere:1",))), Fetches()
    one = await loader.load(INFO, fetch)
    other_weights = pb.Model(names=["m"], tokenizer_digest=INFO.tokenizer_digest, weights_digest="new")
    assert await loader.load(other_weights, fetch) is one
    other = await loader.load(pb.Model(names=["m"], tokenizer_digest="other"), fetch)
    assert other is not one
    assert fetch.count == 2

    loader.keep([other.tokenizer])
    assert await loader.load(INFO, fetch) is not one


async def test_files_are_cached_on_disk(tmp_path: Path) -> None:
    """A coordinator that starts again fetches nothing; one whose cache is damaged does."""
    settings, fetch = CoordinatorSettings(workers=("nowhere:1",), cache_dir=tmp_path), Fetches()
    await TextsLoader(settings).load(INFO, fetch)
    await TextsLoader(settings).load(INFO, fetch)
    assert fetch.count == 1

    (cached,) = (tmp_path / "tokenizers").iterdir()
    cached.write_bytes(b"\xff")
    await TextsLoader(settings).load(INFO, fetch)
    assert fetch.count == 2
