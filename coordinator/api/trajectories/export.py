"""Training rows as JSON lines, or as a table of Arrow or Parquet, for which pyarrow is needed."""

import io
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.trajectories.sessions import within_size
from tokenwire.coordinator.trajectories.rows import TrainingRow
from tokenwire.errors import Unsupported
from tokenwire.process.batches import batches_by_size

if TYPE_CHECKING:
    import pyarrow

FORMATS = {
    "jsonl": "application/jsonl",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
"""Content types by format."""
_PAGE = "`limit` and `offset`"
_TABLE_SIZE = 65_536
_ROW_SIZE = 256
"""About so much becomes a table at a time, at most 256 rows: each table takes 10 KB."""


def encode(rows: Iterable[TrainingRow], form: str) -> bytes:
    """Return rows in a format. They are made one after the other: each takes many times as much as what is made of it.

    Raises Unsupported for a format that is not installed, and TooLarge.
    """
    if form == "jsonl":
        return b"".join(within_size((json_bytes(_columns(row)) + b"\n" for row in rows), len, _PAGE))
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        message = f"The format {form!r} needs pyarrow on the server: pip install 'tokenwire[arrow]'"
        raise Unsupported(message, param="format") from error
    schema = _schema()
    groups = batches_by_size(rows, _size_of, _TABLE_SIZE)
    made = (pyarrow.Table.from_pylist([*map(_flat, group)], schema=schema) for group in groups)
    parts = [*within_size(made, attrgetter("nbytes"), _PAGE)]
    table = pyarrow.concat_tables(parts) if parts else schema.empty_table()
    file = io.BytesIO()
    if form == "parquet":
        parquet.write_table(table, file)
    else:
        with pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


def _size_of(row: TrainingRow) -> int:
    """Return about how many numbers and letters a row has, and what it takes itself."""
    rewards = [len(name) for rewards in (row.rewards, *row.node_rewards.values()) for name in rewards]
    return _ROW_SIZE + len(row.prompt_ids) + len(row.completion_ids) + sum(rewards)


def _columns(row: TrainingRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}


def _flat(row: TrainingRow) -> dict[str, object]:
    """Return a row with maps as Arrow takes them."""
    node_rewards = [(node, [*rewards.items()]) for node, rewards in row.node_rewards.items()]
    return {**_columns(row), "rewards": [*row.rewards.items()], "node_rewards": node_rewards}


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    rewards = pa.map_(pa.string(), pa.float64())
    return pa.schema(
        {
            "session_id": pa.string(),
            "nodes": pa.list_(pa.string()),
            "prompt_ids": pa.list_(pa.int32()),
            "completion_ids": pa.list_(pa.int32()),
            "logprobs": pa.list_(pa.float32()),
            "mask": pa.list_(pa.int8()),
            "versions": pa.list_(pa.string()),
            "finish": pa.string(),
            "model": pa.string(),
            "adapter": pa.string(),
            "reward": pa.float64(),
            "rewards": rewards,
            "node_rewards": pa.map_(pa.string(), rewards),
        }
    )
