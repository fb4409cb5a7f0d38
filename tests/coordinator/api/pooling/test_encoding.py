"""Results as JSON and as bytes."""

import json

import pytest

from tests.coordinator.pooling.embedding import pooled_result
from tokenwire.coordinator.api.pooling.encoding import bytes_per_number, encoded, floats, wire_dtype
from tokenwire.coordinator.api.pooling.fields import EncodingFields
from tokenwire.coordinator.pooling.types import Results

BODY = {"id": "r", "object": "list", "created": 1, "model": "m", "data": [], "usage": {}}


def test_numbers_of_several_rows_stay_in_rows() -> None:
    """As a list of lists."""
    assert floats(pooled_result([1.0, 2.0]).data, [2]) == [1.0, 2.0]
    assert floats(pooled_result([1.0, 2.0, 3.0, 4.0]).data, [2, 2]) == [[1.0, 2.0], [3.0, 4.0]]


async def test_json_has_all_fields_of_the_body_and_an_element_for_each_result() -> None:
    """Under the names that the route chose."""
    response = encoded(Results("r", [pooled_result([0.5])], [1]), EncodingFields(), BODY, "pooling", "data")

    made = json.loads(bytes(response.body))
    assert made == {**BODY, "data": [{"index": 0, "object": "pooling", "data": [0.5]}]}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"])
def test_workers_send_the_type_that_the_client_gets(dtype: str) -> None:
    """But for numbers in JSON, which are those of float32."""
    asked = EncodingFields(embed_dtype=dtype, encoding_format="base64")  # type: ignore[arg-type]

    assert wire_dtype(asked) == dtype
    assert wire_dtype(asked.model_copy(update={"encoding_format": "float"})) == "float32"
    assert bytes_per_number(asked) < bytes_per_number(EncodingFields())
