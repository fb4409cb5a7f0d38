"""Tests of embeddings in the place of pictures: what of a client's bytes would end an engine is refused by name."""

import io
import json
import resource
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lazily import Lazily

embeddings = Lazily("tokenwire.worker.vllm_engine.media_embeddings")
parse = Lazily("vllm.multimodal.parse")
torch = Lazily("torch")
numpy = Lazily("numpy")

pytestmark = pytest.mark.engine

WIDTH, SIDE = 8, 2


def processor_of(**fields: str) -> tuple[Any, Any]:
    """Return a processor whose model has these fields of embeddings, and its configuration."""
    vision = SimpleNamespace(spatial_merge_size=SIDE)
    config = SimpleNamespace(
        hf_config=SimpleNamespace(vision_config=vision), dtype=torch.float16, get_inputs_embeds_size=lambda: WIDTH
    )

    class Parser(parse.MultiModalDataParser):  # type: ignore[name-defined,misc]
        embedding_fields = {"image": fields} if fields else {}

    info = SimpleNamespace(ctx=SimpleNamespace(model_config=config), data_parser=Parser())
    return SimpleNamespace(info=info, _get_mm_fields_config=lambda data, kwargs: {}), config


ONE_TENSOR: dict[str, str] = {}
QWEN = {"image_embeds": "values", "image_grid_thw": "metadata"}


def torch_file(tensor: Any) -> bytes:
    """Return what torch.save writes."""
    target = io.BytesIO()
    torch.save(tensor, target)
    return target.getvalue()


def file_of_fields(**fields: Any) -> bytes:
    """Return what a coordinator makes of tensors and numbers by name."""
    head = {name: len(value) if isinstance(value, bytes) else value for name, value in fields.items()}
    return json.dumps(head).encode() + b"\n" + b"".join(each for each in fields.values() if isinstance(each, bytes))


def loaded_embeddings(data: bytes, fields: dict[str, str] = ONE_TENSOR) -> Any:
    """Return what vLLM gets."""
    processor, config = processor_of(**fields)
    with embeddings.bounded_loading(len(data)):
        return embeddings.load_embeddings(processor, config, data)


def test_a_tensor_comes_from_torch_or_numpy() -> None:
    """Dense or sparse, in any type of floating-point numbers."""
    wanted = torch.arange(3 * WIDTH).reshape(3, WIDTH).float()
    array = io.BytesIO()
    numpy.save(array, wanted.numpy())
    for data in (torch_file(wanted), torch_file(wanted.bfloat16()), torch_file(wanted.to_sparse()), array.getvalue()):
        (found,) = loaded_embeddings(data)
        assert torch.equal(found.float(), wanted)


def test_tensors_by_name_may_have_numbers_beside_them() -> None:
    """The grid is a tensor in either form."""
    for grid in ([1, 4, 6], torch_file(torch.tensor([1, 4, 6]))):
        found = loaded_embeddings(
            file_of_fields(image_embeds=torch_file(torch.ones(6, WIDTH)), image_grid_thw=grid), QWEN
        )
        assert found["image_grid_thw"].tolist() == [[1, 4, 6]]
        assert found["image_embeds"].shape[-2:] == (6, WIDTH)


ROWS = (6, WIDTH)


@pytest.mark.parametrize(
    ("shape", "grid", "reason"),
    [
        ((6, WIDTH + 1), [1, 4, 6], r"has rows of 9 numbers, but the model takes 8: .*\(6, 9\)"),
        ((WIDTH,), [1, 4, 6], r"must have 2 dimensions \(tokens, 8\)"),
        ((2, 3, WIDTH), [1, 4, 6], r"must have 2 dimensions \(tokens, 8\)"),
        ((1, 6, WIDTH), [1, 4, 6], r"must have 2 dimensions \(tokens, 8\)"),
        ((0, WIDTH), [1, 4, 6], r"must have 2 dimensions \(tokens, 8\)"),
        ((5, WIDTH), [1, 4, 6], "has 5 rows, but its image_grid_thw .* has 6 places"),
        ((7, WIDTH), [1, 4, 6], "has 7 rows, but its image_grid_thw .* has 6 places"),
        (ROWS, [1, 3, 8], "1 and two multiples of 2"),
        (ROWS, [3, 4, 2], "1 and two multiples of 2"),  # a video's
        (ROWS, [1, -4, -6], "3 positive integers"),
        (ROWS, [4, 6], "3 positive integers"),
        (ROWS, [1, 4, 6.0], "3 positive integers"),
        (ROWS, [1, 10**30, 6], "image_grid_thw"),
    ],
)
def test_a_shape_that_the_model_does_not_have_is_named(shape: tuple[int, ...], grid: list[int], reason: str) -> None:
    """Rank, width, number of rows, and the grid that they are to fill."""
    with pytest.raises(Exception, match=reason):
        loaded_embeddings(file_of_fields(image_embeds=torch_file(torch.ones(shape)), image_grid_thw=grid), QWEN)


def wrong_values(kind: str) -> Any:
    """Return what is no tensor of embeddings."""
    made: dict[str, Any] = {
        "integers": torch.ones(ROWS, dtype=torch.int64),
        "not a number": torch.full(ROWS, float("nan")),
        "infinite in the model's type": torch.full(ROWS, 1e30),
        "no tensor": {"a": torch.ones(ROWS)},
        "without values": torch.ones(ROWS, device="meta"),
    }
    return made[kind]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("integers", "must be a tensor of floating-point numbers, not one of torch.int64"),
        ("not a number", "not finite in torch.float16"),
        ("infinite in the model's type", "not finite in torch.float16"),
        ("no tensor", "did not deserialize to a torch.Tensor"),
        ("without values", "without values"),
    ],
)
def test_values_that_are_no_embeddings_are_named(kind: str, reason: str) -> None:
    """They would spread through the engine's cache."""
    with pytest.raises(Exception, match=f"(?i){reason}|meta"):
        loaded_embeddings(torch_file(wrong_values(kind)))


def test_fields_that_the_model_does_not_take_are_named() -> None:
    """With those that it does."""
    data = file_of_fields(image_embeds=torch_file(torch.ones(ROWS)), image_sizes=[4, 4])
    with pytest.raises(ValueError, match="no field 'image_sizes': it takes image_embeds, image_grid_thw"):
        loaded_embeddings(data, QWEN)
    with pytest.raises(ValueError, match="it takes one tensor"):
        loaded_embeddings(data)


def test_bytes_that_declare_more_than_they_have_take_no_memory() -> None:
    """The process ends neither itself nor, with all of the machine's memory, others; its limit is as before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    one = torch.sparse_coo_tensor(torch.zeros((2, 1), dtype=torch.int64), torch.ones(1), (2**15, 2**15))
    with pytest.raises(Exception, match=r"(?i)memory|allocate"):
        loaded_embeddings(torch_file(one))
    with pytest.raises(Exception, match=r"(?i)memory|allocate|read"):
        loaded_embeddings(
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr':'<f4','fortran_order':False,'shape':(1000000,8000)}".ljust(117)
            + b"\n"
        )
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_pickles_of_code_are_refused() -> None:
    """As by torch.load for weights."""
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        loaded_embeddings(torch_file(SimpleNamespace(a=1)))
