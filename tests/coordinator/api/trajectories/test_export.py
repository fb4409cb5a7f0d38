"""Exports have the same rows in every format."""

import io
import json
import sys

import pytest

from tests.coordinator.trajectories.test_rows import GRAPH
from tokenwire.coordinator.api.trajectories.export import encode
from tokenwire.coordinator.trajectories.rows import TrainingRow, rows_of
from tokenwire.errors import Unsupported

ROWS = [*rows_of("s", GRAPH, "path")]


def test_lines_of_json_have_the_columns() -> None:
    """One line for each row."""
    first, second = (json.loads(line) for line in encode(ROWS, "jsonl").splitlines())

    assert first["completion_ids"] == [3, 4, 5, 6]
    assert first["logprobs"] == [-3.0, -4.0, None, None]
    assert second["node_rewards"] == {"a": {"other": 2.0}}
    assert encode([], "jsonl") == b""


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_tables_have_the_same_rows(form: str) -> None:
    """With types that do not depend on the values."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for rows in (ROWS, []):
        file = io.BytesIO(encode(rows, form))
        table = parquet.read_table(file) if form == "parquet" else pyarrow.ipc.open_stream(file).read_all()
        assert table.schema.field("logprobs").type.value_type == pyarrow.float32()
        read = [{**row, "rewards": dict(row["rewards"])} for row in table.to_pylist()]
        for row in read:
            row["node_rewards"] = {node: dict(rewards) for node, rewards in row["node_rewards"]}
        assert read == [json.loads(line) for line in encode(rows, "jsonl").splitlines()]


def test_many_short_rows_become_few_tables() -> None:
    """Each takes 10 KB and more time than its rows; long rows get one each."""
    pyarrow = pytest.importorskip("pyarrow")
    long = TrainingRow("s", [], [7] * 70_000)

    def tables(rows: list[TrainingRow]) -> list[int]:
        stream = pyarrow.ipc.open_stream(io.BytesIO(encode(iter(rows), "arrow")))
        return [batch.num_rows for batch in stream]

    assert tables([TrainingRow("s", [str(i)], [i]) for i in range(600)]) == [256, 256, 88]
    assert tables([long, long]) == [1, 1]


def test_without_pyarrow_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the parameter."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"pip install 'tokenwire\[arrow\]'") as raised:
        encode(ROWS, "parquet")
    assert raised.value.param == "format"
