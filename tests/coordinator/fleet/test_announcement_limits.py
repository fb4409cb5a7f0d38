"""What workers may announce of themselves."""

from collections.abc import Callable

import pytest

from tokenwire.coordinator.fleet.announcement_limits import LONGEST_NAME, check_ordered_name, check_welcome
from tokenwire.errors import InvalidRequest, ProtocolError
from tokenwire.v1 import inference_pb2 as pb

LONG = "n" * (LONGEST_NAME + 1)


def welcome_of(change: Callable[[pb.Welcome], object]) -> pb.Welcome:
    """Return a welcome with a change."""
    welcome = pb.Welcome(instance_id="i", model=pb.Model(names=["m"], root="/m", engine="e 1"))
    change(welcome)
    return welcome


def test_an_honest_welcome_is_accepted() -> None:
    """With the longest name, and paths as names."""
    check_welcome(welcome_of(lambda welcome: welcome.model.names.extend([LONG[1:], "/a path/of a model", "Modèle"])))


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
        (lambda welcome: welcome.capabilities.unsupported.append(LONG), "capabilities.unsupported"),
        (lambda welcome: welcome.capabilities.unsupported_operations.append(LONG), "unsupported_operations"),
        (lambda welcome: setattr(welcome.capabilities, "seeded_noise", LONG), "capabilities.seeded_noise"),
        (lambda welcome: setattr(welcome.serving, "weight_version", LONG), "serving.weight_version"),
        (lambda welcome: setattr(welcome.serving, "weights_path", 9 * LONG), "serving.weights_path"),
        (lambda welcome: welcome.serving.awake_parts.append(LONG), "serving.awake_parts"),
        (lambda welcome: welcome.serving.adapters.add(name=LONG), "serving.adapters"),
        (lambda welcome: welcome.serving.adapters.add(path=9 * LONG), "the paths of serving.adapters"),
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
