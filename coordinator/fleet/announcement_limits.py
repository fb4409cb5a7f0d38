"""What workers have to announce of themselves, and how much: it becomes labels of metrics, and lines of logs."""

import itertools
from collections.abc import Iterable

from tokenwire.errors import InvalidRequest, ProtocolError
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.version import announces_identity, sends_heartbeats
from tokenwire.v1 import inference_pb2 as pb

LONGEST_NAME = 512
"""Characters of a name or a label."""
_LONGEST_PATH = 4096
_LONGEST_TEXT = 64 * 1024
_MOST_NAMES = 256
_MOST_ADAPTERS = 4096
_MOST_LABELS = 2**17
_LARGEST_MODEL = 4 * 2**20
"""Bytes of all that is announced of a model, fields of newer versions among them."""
_LARGEST_STATE = 2 * 2**20
"""Bytes of a serving state with its records: what takes some hundredths of a second."""


def check_welcome(welcome: pb.Welcome) -> None:
    """Check what a worker says of itself when it connects. Raises ProtocolError."""
    model, capabilities = welcome.model, welcome.capabilities
    if not model.names:
        raise ProtocolError("the worker's welcome names no model")
    if (size := model.ByteSize()) > _LARGEST_MODEL:
        raise ProtocolError(f"the worker announces a model of {size:,} bytes: {_LARGEST_MODEL:,} are allowed")
    named = {
        "instance_id": [welcome.instance_id],
        "weight_version": [welcome.weight_version],
        "model.names": model.names,
        "model.engine": [model.engine],
        "model.model_type": [model.model_type],
        "model.architecture": [model.architecture],
        "model.weights_digest": [model.weights_digest],
        "model.dtype": [model.dtype],
        "model.quantization": [model.quantization],
        "model.tasks": model.tasks,
        "model.media": [kind.modality for kind in model.media],
        "model.pooling.task": [model.pooling.task],
        "model.pooling.score": [model.pooling.score],
        "model.pooling.truncation_side": [model.pooling.truncation_side],
        "model.pooling.instructions": model.pooling.instructions,
        "capabilities.unsupported": capabilities.unsupported,
        "capabilities.unsupported_operations": capabilities.unsupported_operations,
        "capabilities.seeded_noise": [capabilities.seeded_noise],
    }
    for field, values in named.items():
        _check(field, values, _MOST_NAMES)
    # The digest of a plain vLLM server's tokenizer is a path.
    _check("model.root", [model.root], 1, _LONGEST_PATH)
    _check("model.tokenizer_digest", [model.tokenizer_digest], 1, 2 * _LONGEST_PATH)
    if len(model.default_sampling_params_json) > _LONGEST_TEXT:
        raise ProtocolError(f"the worker announces more than {_LONGEST_TEXT:,} characters of sampling defaults")
    _check_texts(model)
    check_state(welcome.serving)
    _check_identity(welcome)
    if not welcome.heartbeat_ms and sends_heartbeats(welcome.protocol):
        raise ProtocolError("the worker announces no heartbeats, which all of its version of the protocol send")


def check_state(state: pb.ServingState) -> None:
    """Check a serving state. Raises ProtocolError."""
    if (size := state.ByteSize()) > _LARGEST_STATE:
        raise ProtocolError(f"the worker announces a state of {size:,} bytes: {_LARGEST_STATE:,} are allowed")
    _check("serving.weight_version", [state.weight_version], 1)
    _check("serving.weights_path", [state.weights_path], 1, _LONGEST_PATH)
    _check("serving.awake_parts", state.awake_parts, _MOST_NAMES)
    _check("serving.adapters", (each.name for each in state.adapters), _MOST_ADAPTERS)
    _check("the paths of serving.adapters", (each.path for each in state.adapters), _MOST_ADAPTERS, _LONGEST_PATH)


def check_label(label: str) -> None:
    """Check the label that a frame gives its weights. Raises ProtocolError."""
    _check("weight_version", [label], 1)


def check_ordered_name(name: str, param: str) -> None:
    """Check a name that an operation sets: workers are to announce it. Raises InvalidRequest."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidRequest(f"`{param}` must be at most {LONGEST_NAME} printable characters.", param=param)


def check_ordered_adapters(desired: pb.ServingState, adapter: pb.LoraAdapter) -> None:
    """Check that workers may announce a state with one more adapter. Raises InvalidRequest."""
    # Signatures of several keys, with which records are repeated while one replaces another, need room, too.
    if len(desired.adapters) >= _MOST_ADAPTERS or desired.ByteSize() + 2 * adapter.ByteSize() > _LARGEST_STATE * 3 // 4:
        raise InvalidRequest(
            f"There are {len(desired.adapters):,} adapters, and no room for the path and the name of another one: "
            "unload some.",
            param="lora_name",
        )


def _check_identity(welcome: pb.Welcome) -> None:
    """Check that a worker says what it is, if it can: what is not known is taken to be equal to others."""
    unknown = ModelRevision.of(welcome.model).unknown
    if unknown and announces_identity(welcome.protocol):
        raise ProtocolError(
            f"the worker does not announce its {' and its '.join(unknown)}, as all of its version of the protocol do: "
            "its replies could not be told from those of others"
        )


def _check_texts(model: pb.Model) -> None:
    """Check what becomes a part of prompts and replies, and may have any characters."""
    placeholders = (text for kind in model.media for text in kind.placeholders)
    _check_sizes("model.media.placeholders", placeholders, _MOST_NAMES)
    _check_sizes("model.pooling.labels", model.pooling.labels, _MOST_LABELS)
    instructions = model.pooling.instructions.values()
    _check_sizes("the texts of model.pooling.instructions", instructions, _MOST_NAMES, _LONGEST_TEXT)


def _check(field: str, values: Iterable[str], most: int, longest: int = LONGEST_NAME) -> None:
    found = _check_sizes(field, values, most, longest)
    if not all(map(str.isprintable, found)):
        raise ProtocolError(f"the worker announces a control character in {field}")


def _check_sizes(field: str, values: Iterable[str], most: int, longest: int = LONGEST_NAME) -> list[str]:
    found = list(itertools.islice(values, most + 1))
    if len(found) > most:
        raise ProtocolError(f"the worker announces more than {most} values of {field}")
    length = max(map(len, found), default=0)
    if length > longest:
        raise ProtocolError(f"the worker announces {length:,} characters of {field}: {longest} are allowed")
    return found
