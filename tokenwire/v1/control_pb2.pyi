from tokenwire.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PauseMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAUSE_MODE_UNSPECIFIED: _ClassVar[PauseMode]
    PAUSE_MODE_ABORT: _ClassVar[PauseMode]
    PAUSE_MODE_WAIT: _ClassVar[PauseMode]
    PAUSE_MODE_KEEP: _ClassVar[PauseMode]

class WeightUpdateStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHT_UPDATE_STAGE_UNSPECIFIED: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_INIT: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_START: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_START_DRAFT: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_UPDATE: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_FINISH: _ClassVar[WeightUpdateStage]
    WEIGHT_UPDATE_STAGE_SHUTDOWN: _ClassVar[WeightUpdateStage]
PAUSE_MODE_UNSPECIFIED: PauseMode
PAUSE_MODE_ABORT: PauseMode
PAUSE_MODE_WAIT: PauseMode
PAUSE_MODE_KEEP: PauseMode
WEIGHT_UPDATE_STAGE_UNSPECIFIED: WeightUpdateStage
WEIGHT_UPDATE_STAGE_INIT: WeightUpdateStage
WEIGHT_UPDATE_STAGE_START: WeightUpdateStage
WEIGHT_UPDATE_STAGE_START_DRAFT: WeightUpdateStage
WEIGHT_UPDATE_STAGE_UPDATE: WeightUpdateStage
WEIGHT_UPDATE_STAGE_FINISH: WeightUpdateStage
WEIGHT_UPDATE_STAGE_SHUTDOWN: WeightUpdateStage

class GetMetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("welcome", "sessions", "open_slots", "steps", "generated_tokens", "engine_config_json")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_SLOTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    welcome: _inference_pb2.Welcome
    sessions: int
    open_slots: int
    steps: int
    generated_tokens: int
    engine_config_json: str
    def __init__(self, welcome: _Optional[_Union[_inference_pb2.Welcome, _Mapping]] = ..., sessions: _Optional[int] = ..., open_slots: _Optional[int] = ..., steps: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., engine_config_json: _Optional[str] = ...) -> None: ...

class GetTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTokenizerResponse(_message.Message):
    __slots__ = ("digest", "files")
    class FilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    files: _containers.ScalarMap[str, bytes]
    def __init__(self, digest: _Optional[str] = ..., files: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("request_ids", "all")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., all: bool = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("aborted_slots",)
    ABORTED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    aborted_slots: int
    def __init__(self, aborted_slots: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("deadline_ms",)
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    def __init__(self, deadline_ms: _Optional[int] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseGenerationRequest(_message.Message):
    __slots__ = ("mode", "clear_cache", "epoch", "record")
    MODE_FIELD_NUMBER: _ClassVar[int]
    CLEAR_CACHE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    mode: PauseMode
    clear_cache: bool
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, mode: _Optional[_Union[PauseMode, str]] = ..., clear_cache: bool = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class PauseGenerationResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class ResumeGenerationRequest(_message.Message):
    __slots__ = ("epoch", "record")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class ResumeGenerationResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class IsPausedRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IsPausedResponse(_message.Message):
    __slots__ = ("paused",)
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    def __init__(self, paused: bool = ...) -> None: ...

class SleepRequest(_message.Message):
    __slots__ = ("level", "mode", "epoch", "record")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    level: int
    mode: PauseMode
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, level: _Optional[int] = ..., mode: _Optional[_Union[PauseMode, str]] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class SleepResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class WakeUpRequest(_message.Message):
    __slots__ = ("tags", "epoch", "record")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, tags: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class WakeUpResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class IsSleepingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IsSleepingResponse(_message.Message):
    __slots__ = ("sleeping",)
    SLEEPING_FIELD_NUMBER: _ClassVar[int]
    sleeping: bool
    def __init__(self, sleeping: bool = ...) -> None: ...

class ResetCacheRequest(_message.Message):
    __slots__ = ("reset_running_requests", "reset_external")
    RESET_RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RESET_EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    reset_running_requests: bool
    reset_external: bool
    def __init__(self, reset_running_requests: bool = ..., reset_external: bool = ...) -> None: ...

class ResetCacheResponse(_message.Message):
    __slots__ = ("success",)
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    def __init__(self, success: bool = ...) -> None: ...

class LoadLoraRequest(_message.Message):
    __slots__ = ("adapter", "epoch", "record")
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    adapter: _inference_pb2.LoraAdapter
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, adapter: _Optional[_Union[_inference_pb2.LoraAdapter, _Mapping]] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class LoadLoraResponse(_message.Message):
    __slots__ = ("loaded", "serving")
    LOADED_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    loaded: bool
    serving: _inference_pb2.ServingState
    def __init__(self, loaded: bool = ..., serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class UnloadLoraRequest(_message.Message):
    __slots__ = ("id", "epoch", "record")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    id: int
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, id: _Optional[int] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class UnloadLoraResponse(_message.Message):
    __slots__ = ("unloaded", "serving")
    UNLOADED_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    unloaded: bool
    serving: _inference_pb2.ServingState
    def __init__(self, unloaded: bool = ..., serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class ListLorasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLorasResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class LoadWeightsRequest(_message.Message):
    __slots__ = ("path", "weight_version", "reset_prefix_cache", "epoch", "record")
    PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESET_PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    path: str
    weight_version: str
    reset_prefix_cache: bool
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, path: _Optional[str] = ..., weight_version: _Optional[str] = ..., reset_prefix_cache: bool = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class LoadWeightsResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class UpdateWeightsRequest(_message.Message):
    __slots__ = ("stage", "arguments_json", "epoch", "record")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    stage: WeightUpdateStage
    arguments_json: str
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, stage: _Optional[_Union[WeightUpdateStage, str]] = ..., arguments_json: _Optional[str] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class UpdateWeightsResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class GetWeightVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWeightVersionResponse(_message.Message):
    __slots__ = ("weight_version",)
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    weight_version: str
    def __init__(self, weight_version: _Optional[str] = ...) -> None: ...

class SetWeightVersionRequest(_message.Message):
    __slots__ = ("weight_version", "epoch", "record")
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    weight_version: str
    epoch: int
    record: _inference_pb2.OperationRecord
    def __init__(self, weight_version: _Optional[str] = ..., epoch: _Optional[int] = ..., record: _Optional[_Union[_inference_pb2.OperationRecord, _Mapping]] = ...) -> None: ...

class SetWeightVersionResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class AdoptStateRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: _inference_pb2.ServingState
    def __init__(self, target: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class AdoptStateResponse(_message.Message):
    __slots__ = ("serving",)
    SERVING_FIELD_NUMBER: _ClassVar[int]
    serving: _inference_pb2.ServingState
    def __init__(self, serving: _Optional[_Union[_inference_pb2.ServingState, _Mapping]] = ...) -> None: ...

class CollectiveRpcRequest(_message.Message):
    __slots__ = ("method", "args_json", "kwargs_json", "timeout_seconds")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    method: str
    args_json: str
    kwargs_json: str
    timeout_seconds: float
    def __init__(self, method: _Optional[str] = ..., args_json: _Optional[str] = ..., kwargs_json: _Optional[str] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class CollectiveRpcResponse(_message.Message):
    __slots__ = ("results_json",)
    RESULTS_JSON_FIELD_NUMBER: _ClassVar[int]
    results_json: str
    def __init__(self, results_json: _Optional[str] = ...) -> None: ...
