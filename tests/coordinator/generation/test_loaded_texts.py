"""A tokenizer and its template are loaded once for all models with the same ones."""

import asyncio
from pathlib import Path

import pytest

from tokenwire.coordinator.generation.loaded_texts import TextsLoader
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.model import load_model

FILES = load_model(None, None).files
INFO = pb.Model(names=["m"], tokenizer_digest=tokenizer_digest(FILES))


OTHER_FILES = {**FILES, "special_tokens_map.json": b"{}"}


class Fetches:
    """Counts how often the files were fetched."""

    def __init__(self, files: dict[str, bytes] = FILES) -> None:
        self.count = 0
        self._files = files

    async def __call__(self) -> dict[str, bytes]:
        """Return them."""
        self.count += 1
        return self._files


async def test_other_weights_share_a_tokenizer() -> None:
    """It is one object; with another digest it is another."""
    loader, fetch = TextsLoader(CoordinatorSettings(workers=("nowhere:1",))), Fetches()
    one = await loader.load(INFO, fetch)
    other_weights = pb.Model(names=["m"], tokenizer_digest=INFO.tokenizer_digest, weights_digest="new")
    assert await loader.load(other_weights, fetch) is one
    fetch_other = Fetches(OTHER_FILES)
    other = await loader.load(pb.Model(names=["m"], tokenizer_digest=tokenizer_digest(OTHER_FILES)), fetch_other)
    assert other is not one
    assert (fetch.count, fetch_other.count) == (1, 1)

    loader.keep([other.tokenizer])
    assert await loader.load(INFO, fetch) is not one


class ReadFiles(dict[str, bytes]):
    """Counts how often its tokenizer is read."""

    reads = 0

    def __getitem__(self, name: str) -> bytes:
        self.reads += name == "tokenizer.json"
        return super().__getitem__(name)


async def test_a_tokenizer_is_built_once_for_all_workers_that_bring_it() -> None:
    """Though they come at the same time, or under other names: meanwhile all streams wait."""
    loader, files = TextsLoader(CoordinatorSettings(workers=("nowhere:1",))), ReadFiles(FILES)
    tokenizer_digest(files)
    to_check, files.reads = files.reads, 0
    infos = [pb.Model(names=[name], tokenizer_digest=INFO.tokenizer_digest) for name in ("m", "m", "other")]
    loaded = await asyncio.gather(*(loader.load(info, Fetches(files)) for info in infos))
    assert len({id(texts.tokenizer) for texts in loaded}) == 1
    assert files.reads == len(loaded) * to_check + 1


async def test_files_without_a_digest_are_not_taken_for_one_another() -> None:
    """Of workers that announce none."""
    loader = TextsLoader(CoordinatorSettings(workers=("nowhere:1",)))
    one, other = [await loader.load(pb.Model(names=[name]), Fetches()) for name in ("m", "other")]
    assert one.tokenizer is not other.tokenizer


async def test_a_tokenizer_of_ones_own_is_not_built_again_for_what_workers_announce(tmp_path: Path) -> None:
    """Only if its files have changed."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    loader, fetch = TextsLoader(CoordinatorSettings(workers=("nowhere:1",), tokenizer=tmp_path)), Fetches()
    one = await loader.load(INFO, fetch)
    announced = pb.Model(names=["m"], tokenizer_digest="another")
    assert (await loader.load(announced, fetch)) is one
    (tmp_path / "special_tokens_map.json").write_text("{}")
    assert (await loader.load(announced, fetch)).tokenizer is not one.tokenizer
    assert fetch.count == 0


async def test_a_worker_that_announces_the_digest_of_others_is_rejected() -> None:
    """Its files are loaded for nobody, and those who have the digest bring their own."""
    loader = TextsLoader(CoordinatorSettings(workers=("nowhere:1",)))
    with pytest.raises(InvalidRequest, match="do not have the digest"):
        await loader.load(INFO, Fetches(OTHER_FILES))

    assert (await loader.load(INFO, Fetches())).tokenizer is not None


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


async def test_a_tokenizer_that_multiplies_texts_is_no_workers(tmp_path: Path) -> None:
    """Nobody gets it; a coordinator's own may be of any kind."""
    step = '{"type":"Replace","pattern":{"String":"e"},"content":"' + "e" * 1000 + '"}'
    model = '{"type":"WordLevel","vocab":{"e":0},"unk_token":"e"}'
    files = {"tokenizer.json": f'{{"model":{model},"normalizer":{step}}}'.encode()}
    info = pb.Model(names=["m"], tokenizer_digest=tokenizer_digest(files))
    with pytest.raises(InvalidRequest, match=r"may multiply the length of a text by 1,000 .* so it is not used"):
        await TextsLoader(CoordinatorSettings(workers=("nowhere:1",))).load(info, Fetches(files))

    (tmp_path / "tokenizer.json").write_bytes(files["tokenizer.json"])
    own = TextsLoader(CoordinatorSettings(workers=("nowhere:1",), tokenizer=tmp_path))
    assert (await own.load(info, Fetches(files))).tokenizer.encode("e", False) == [0]
