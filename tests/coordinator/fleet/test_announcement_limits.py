"""What workers may announce of themselves."""

from collections.abc import Callable

import pytest

from tests.workers import IDENTITY
from tokenwire.coordinator.fleet.announcement_limits import (
    LONGEST_NAME,
    check_ordered_adapters,
    check_ordered_name,
    check_state,
    check_welcome,
)
from tokenwire.errors import InvalidRequest, ProtocolError
from tokenwire.protocol.version import MAJOR, MINOR
from tokenwire.v1 import inference_pb2 as pb

LONG = "n" * (LONGEST_NAME + 1)


UNKNOWN = b"\xfa\x3e\x80\x80\x80\x02" + bytes(2**22)
"""Field 1007 of a model, with 4 MiB."""


def instruct(welcome: pb.Welcome, instructions: dict[str, str]) -> None:
    """Add prompts of input types to a welcome."""
    welcome.model.pooling.instructions.update(instructions)


def welcome_of(change: Callable[[pb.Welcome], object]) -> pb.Welcome:
    """Return a welcome with a change."""
    welcome = pb.Welcome(instance_id="i", model=pb.Model(names=["m"], root="/m", engine="e 1"))
    change(welcome)
    return welcome


def test_an_honest_welcome_is_accepted() -> None:
    """With the longest name, and paths as names."""
    check_welcome(welcome_of(lambda welcome: welcome.model.names.extend([LONG[1:], "/a path/of a model", "Modèle"])))


def test_a_worker_says_what_it_is_if_its_version_can() -> None:
    """One that leaves it out would be taken for any other; a path in place of a tokenizer's digest says nothing."""

    def announce(minor: int, **fields: str) -> None:
        model = pb.Model(names=["m"], **{**IDENTITY, **fields})
        version = pb.ProtocolVersion(major=MAJOR, minor=minor)
        check_welcome(pb.Welcome(protocol=version, model=model, heartbeat_ms=500))

    announce(6)
    announce(5, weights_digest="", dtype="", quantization="")
    for minor in (6, MINOR, MINOR + 1):
        with pytest.raises(ProtocolError, match="does not announce its weights and its dtype, as all"):
            announce(minor, weights_digest="", dtype="")
        with pytest.raises(ProtocolError, match="does not announce its tokenizer,"):
            announce(minor, tokenizer_digest="directory:/model")


def test_a_worker_sends_heartbeats_if_its_version_can() -> None:
    """Without, it would be alive for as long as its connection is."""

    def announce(minor: int, heartbeat_ms: int) -> None:
        version = pb.ProtocolVersion(major=MAJOR, minor=minor)
        model = pb.Model(names=["m"], **IDENTITY)
        check_welcome(pb.Welcome(protocol=version, model=model, heartbeat_ms=heartbeat_ms))

    announce(1, 0)
    announce(2, 1)
    for minor in (2, MINOR, MINOR + 1):
        with pytest.raises(ProtocolError, match="announces no heartbeats"):
            announce(minor, 0)


def test_texts_of_prompts_and_replies_have_any_characters() -> None:
    """A model's files have line breaks in prompts."""

    def pool(welcome: pb.Welcome) -> None:
        welcome.model.pooling.labels.extend(["yes\n"] * 2**17)
        welcome.model.media.add(modality="image", placeholders=["<image>\n"] * 256)
        instruct(welcome, {"query": "Instruct: Find passages.\nQuery: "})

    check_welcome(welcome_of(pool))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda welcome: welcome.model.ClearField("names"), "names no model"),
        (lambda welcome: welcome.model.names.append(LONG), "513 characters of model.names: 512 are allowed"),
        (lambda welcome: welcome.model.names.append("a\nb"), "a control character in model.names"),
        (lambda welcome: welcome.model.names.extend(["n"] * 256), "more than 256 values of model.names"),
        (lambda welcome: setattr(welcome, "instance_id", LONG), "instance_id"),
        (lambda welcome: setattr(welcome, "weight_version", LONG), "weight_version"),
        (lambda welcome: setattr(welcome.model, "root", 9 * LONG), "model.root"),
        (lambda welcome: setattr(welcome.model, "default_sampling_params_json", 130 * LONG), "sampling defaults"),
        (lambda welcome: setattr(welcome.model, "engine", LONG), "model.engine"),
        (lambda welcome: setattr(welcome.model, "dtype", "a\0"), "model.dtype"),
        (lambda welcome: setattr(welcome.model, "quantization", LONG), "model.quantization"),
        (lambda welcome: setattr(welcome.model, "architecture", LONG), "model.architecture"),
        (lambda welcome: setattr(welcome.model, "model_type", LONG), "model.model_type"),
        (lambda welcome: setattr(welcome.model, "weights_digest", LONG), "model.weights_digest"),
        (lambda welcome: setattr(welcome.model, "tokenizer_digest", 17 * LONG), "model.tokenizer_digest"),
        (lambda welcome: welcome.model.tasks.append(LONG), "model.tasks"),
        (lambda welcome: welcome.model.tasks.extend(["t"] * 257), "more than 256 values of model.tasks"),
        (lambda welcome: welcome.model.media.add(modality=LONG), "model.media"),
        (lambda welcome: welcome.model.media.add(placeholders=[LONG]), "model.media.placeholders"),
        (lambda welcome: [welcome.model.media.add(placeholders=["p"] * 129) for _ in range(2)], "256 values"),
        (lambda welcome: setattr(welcome.model.pooling, "task", LONG), "model.pooling.task"),
        (lambda welcome: setattr(welcome.model.pooling, "score", LONG), "model.pooling.score"),
        (lambda welcome: setattr(welcome.model.pooling, "truncation_side", LONG), "model.pooling.truncation_side"),
        (lambda welcome: welcome.model.pooling.labels.append(LONG), "model.pooling.labels"),
        (lambda welcome: welcome.model.pooling.labels.extend([""] * (2**17 + 1)), "131072 values"),
        (lambda welcome: instruct(welcome, {LONG: ""}), "model.pooling.instructions"),
        (lambda welcome: instruct(welcome, {"a\nb": ""}), "a control character in model.pooling.instructions"),
        (lambda welcome: instruct(welcome, {str(i): "" for i in range(257)}), "256 values"),
        (lambda welcome: instruct(welcome, {"query": 130 * LONG}), "the texts of model.pooling.instructions"),
        (
            lambda welcome: welcome.model.pooling.labels.extend([LONG[1:]] * 8192),
            "a model of 4,2.* 4,194,304 are allowed",
        ),
        (lambda welcome: welcome.model.MergeFromString(UNKNOWN), "a model of 4,.* 4,194,304 are allowed"),
        (lambda welcome: welcome.capabilities.unsupported.append(LONG), "capabilities.unsupported"),
        (lambda welcome: welcome.capabilities.unsupported_operations.append(LONG), "unsupported_operations"),
        (lambda welcome: setattr(welcome.capabilities, "seeded_noise", LONG), "capabilities.seeded_noise"),
        (lambda welcome: setattr(welcome.serving, "weight_version", LONG), "serving.weight_version"),
        (lambda welcome: setattr(welcome.serving, "weights_path", 9 * LONG), "serving.weights_path"),
        (lambda welcome: welcome.serving.awake_parts.append(LONG), "serving.awake_parts"),
        (lambda welcome: welcome.serving.adapters.add(name=LONG), "serving.adapters"),
        (lambda welcome: welcome.serving.adapters.add(path=9 * LONG), "the paths of serving.adapters"),
        (
            lambda welcome: welcome.serving.records.add(operation=bytes(2**21)),
            "a state of 2,0.* bytes: 2,097,152 are allowed",
        ),
    ],
)
def test_whatever_becomes_a_label_or_a_line_is_bounded(change: Callable[[pb.Welcome], object], message: str) -> None:
    """In length, number and characters."""
    with pytest.raises(ProtocolError, match=message):
        check_welcome(welcome_of(change))


@pytest.mark.parametrize("name", [LONG, "a\nb"])
def test_operations_set_only_names_that_workers_may_announce(name: str) -> None:
    """Else each of them would lose its session."""
    check_ordered_name(LONG[1:], "weight_version")
    with pytest.raises(InvalidRequest, match="`weight_version` must be at most 512 printable characters"):
        check_ordered_name(name, "weight_version")


def test_no_more_adapters_are_loaded_than_workers_may_announce() -> None:
    """With their records, and room for signatures of several keys; else each of them would lose its session."""
    desired = pb.ServingState()
    for number in range(4096):
        adapter = pb.LoraAdapter(name=f"adapter-{number}", id=number + 1, path=f"/models/adapters/number-{number}")
        check_ordered_adapters(desired, adapter)
        operation = pb.Operation(model="m", epoch=2**48 + number, load_adapter=adapter).SerializeToString()
        desired.adapters.append(adapter)
        desired.records.append(pb.OperationRecord(operation=operation, signatures=[bytes(32)] * 4))
    check_state(desired)
    with pytest.raises(InvalidRequest, match="no room for the path and the name of another one: unload some"):
        check_ordered_adapters(desired, adapter)

    long = pb.LoraAdapter(name="long", path="p" * 4096)
    with pytest.raises(InvalidRequest, match="There are 300 adapters"):
        check_ordered_adapters(pb.ServingState(adapters=[long] * 300, records=desired.records[:3000]), long)
