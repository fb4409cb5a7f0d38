"""Workers of one revision may continue each other's replies; what is not known of one of them keeps no two apart."""

from typing import Any

import pytest

from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb

KNOWN = {
    "architecture": "Qwen3ForCausalLM",
    "tokenizer_digest": "t",
    "weights_digest": "w",
    "dtype": "bfloat16",
    "quantization": "none",
}


def revision(serving: pb.ServingState | None = None, /, **fields: str) -> ModelRevision:
    """Return the revision of a worker that announces all, with these fields in place of others."""
    given: dict[str, Any] = {"root": "/models/m", **KNOWN, **fields}
    return ModelRevision.of(pb.Model(**given), serving)


@pytest.mark.parametrize("field", KNOWN)
def test_whatever_tokens_depend_on_makes_another_revision(field: str) -> None:
    """Each of the fields that workers announce."""
    one, other = revision(), revision(**{field: "other"})
    assert one == revision()
    assert one.digest == revision().digest
    assert one.digest != other.digest
    assert not one.accepts(other)
    assert not other.accepts(one)


def test_the_place_of_known_weights_does_not_matter() -> None:
    """A hub id and a copy on a disk are the same."""
    assert revision(root="org/model") == revision(root="/mnt/model")


@pytest.mark.parametrize("field", KNOWN)
def test_what_a_worker_does_not_announce_is_taken_to_be_equal(field: str) -> None:
    """An older version: a rolling upgrade must end no reply."""
    assert revision().accepts(revision(**{field: ""}))
    assert revision(**{field: ""}).accepts(revision())


def test_unknown_weights_are_told_apart_by_where_they_came_from() -> None:
    """As with plain vLLM servers, whose tokenizer is the coordinator's own."""
    plain: dict[str, Any] = {
        "weights_digest": "",
        "dtype": "",
        "quantization": "",
        "tokenizer_digest": "directory:/models/m",
    }
    assert revision(**plain).accepts(revision(**plain))
    assert not revision(**plain).accepts(revision(root="/models/other", **plain))
    assert revision(**plain).accepts(revision(root="/models/other"))
    assert not revision(**plain).is_known


def test_weights_that_an_operation_brought_are_those_of_all_workers() -> None:
    """Whatever each of them started with; the rest still matters."""
    loaded = pb.ServingState(epoch=9, weights_epoch=9, weights_path="/new")
    assert revision(loaded) == revision(loaded, weights_digest="another")
    assert revision(loaded) == revision(pb.ServingState(epoch=11, weights_epoch=11))
    assert revision(loaded).accepts(revision())
    assert revision().accepts(revision(loaded))
    assert not revision(loaded).accepts(revision(loaded, dtype="float16"))
    assert revision(pb.ServingState(epoch=9)) == revision()


def test_weights_of_an_operation_that_is_not_followed_are_those_of_this_operation() -> None:
    """Another worker may not have got it, or another one."""
    loaded, transferred = (pb.ServingState(weights_epoch=9, weights_path=path) for path in ("/new", ""))
    later = pb.ServingState(weights_epoch=11, weights_path="/new")
    known: dict[str, Any] = {"root": "/models/m", **KNOWN}
    found = [
        ModelRevision.of(pb.Model(**known), each, follows_operations=False)
        for each in (loaded, transferred, later, None)
    ]
    for one in found:
        assert [other for other in found if one.accepts(other)] == [one]
    other_start = pb.Model(**{**known, "weights_digest": "another"})
    assert ModelRevision.of(other_start, loaded, follows_operations=False).accepts(found[0])


def test_weights_that_were_loaded_past_all_operations_are_others() -> None:
    """A call to one worker, which no other worker got."""
    loaded = pb.ServingState(unmanaged=True, weights_path="/new")
    assert not revision(loaded).accepts(revision())
    assert revision(loaded) == revision(loaded)


def test_the_digest_is_short_and_printable() -> None:
    """It stands in logs, metrics and on the status page."""
    assert len(revision().digest) == 10
    int(str(revision()), 16)
