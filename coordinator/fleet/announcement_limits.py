"""Limits on what workers announce of themselves, which becomes labels of metrics, lines of logs and the status page."""

from collections.abc import Iterable

from tokenwire.errors import InvalidRequest, ProtocolError
from tokenwire.v1 import inference_pb2 as pb

LONGEST_NAME = 512
"""Characters of a name or a label."""
_LONGEST_PATH = 4096
_LONGEST_JSON = 64 * 1024
_MOST_NAMES = 256
_MOST_ADAPTERS = 4096


def check_welcome(welcome: pb.Welcome) -> None:
    """Check what a worker says of itself when it connects. Raises ProtocolError."""
    model, capabilities = welcome.model, welcome.capabilities
    if not model.names:
        raise ProtocolError("the worker's welcome names no model")
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
        "capabilities.unsupported": capabilities.unsupported,
        "capabilities.unsupported_operations": capabilities.unsupported_operations,
        "capabilities.seeded_noise": [capabilities.seeded_noise],
    }
    for field, values in named.items():
        _check(field, values, _MOST_NAMES)
    # The digest of a plain vLLM server's tokenizer is a path.
    _check("model.root", [model.root], 1, _LONGEST_PATH)
    _check("model.tokenizer_digest", [model.tokenizer_digest], 1, 2 * _LONGEST_PATH)
    if len(model.default_sampling_params_json) > _LONGEST_JSON:
        raise ProtocolError(f"the worker announces more than {_LONGEST_JSON:,} characters of sampling defaults")
    check_state(welcome.serving)


def check_state(state: pb.ServingState) -> None:
    """Check a serving state. Raises ProtocolError."""
    _check("serving.weight_version", [state.weight_version], 1)
    _check("serving.weights_path", [state.weights_path], 1, _LONGEST_PATH)
    _check("serving.awake_parts", state.awake_parts, _MOST_NAMES)
    _check("serving.adapters", (each.name for each in state.adapters), _MOST_ADAPTERS)
    _check("the paths of serving.adapters", (each.path for each in state.adapters), _MOST_ADAPTERS, _LONGEST_PATH)


def check_ordered_name(name: str, param: str) -> None:
    """Check a name that an operation sets: workers are to announce it. Raises InvalidRequest."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidRequest(f"`{param}` must be at most {LONGEST_NAME} printable characters.", param=param)


def _check(field: str, values: Iterable[str], most: int, longest: int = LONGEST_NAME) -> None:
    for number, value in enumerate(values):
        if number >= most:
            raise ProtocolError(f"the worker announces more than {most} values of {field}")
        if len(value) > longest:
            raise ProtocolError(f"the worker announces {len(value):,} characters of {field}: {longest} are allowed")
        if not value.isprintable():
            raise ProtocolError(f"the worker announces a control character in {field}")
