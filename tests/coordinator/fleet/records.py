"""Operations in tests, with their records."""

from tokenwire.peer_auth.operation_keys import OperationKeys
from tokenwire.v1 import inference_pb2 as pb

KEYS, FOREIGN = OperationKeys("ours" * 8), OperationKeys("foreign" * 8)
NOW_S = 1_700_000_000
NOW = NOW_S << 16
"""The epoch of this second."""
DAY = (24 * 60 * 60) << 16


def operation(epoch: int, model: str = "m", **fields: object) -> bytes:
    """Return a serialized operation; without fields, a pause."""
    fields = fields or {"pause": pb.PauseState(paused=True)}
    return pb.Operation(model=model, epoch=epoch, **fields).SerializeToString(deterministic=True)  # type: ignore[arg-type]


def announcing(*records: pb.OperationRecord, epoch: int = 0, **fields: object) -> pb.ServingState:
    """Return a state with records; its epoch is that of the newest."""
    newest = max((pb.Operation.FromString(record.operation).epoch for record in records), default=0)
    return pb.ServingState(epoch=epoch or newest, revision=9, records=records, **fields)  # type: ignore[arg-type]
