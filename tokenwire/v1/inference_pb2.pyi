from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORT: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]
    FINISH_REASON_REPETITION: _ClassVar[FinishReason]

class RefusalCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_CODE_UNSPECIFIED: _ClassVar[RefusalCode]
    REFUSAL_CODE_INVALID: _ClassVar[RefusalCode]
    REFUSAL_CODE_OVERLOADED: _ClassVar[RefusalCode]
    REFUSAL_CODE_DRAINING: _ClassVar[RefusalCode]
    REFUSAL_CODE_UNAVAILABLE: _ClassVar[RefusalCode]
    REFUSAL_CODE_MEDIA_MISSING: _ClassVar[RefusalCode]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORT: FinishReason
FINISH_REASON_ERROR: FinishReason
FINISH_REASON_REPETITION: FinishReason
REFUSAL_CODE_UNSPECIFIED: RefusalCode
REFUSAL_CODE_INVALID: RefusalCode
REFUSAL_CODE_OVERLOADED: RefusalCode
REFUSAL_CODE_DRAINING: RefusalCode
REFUSAL_CODE_UNAVAILABLE: RefusalCode
REFUSAL_CODE_MEDIA_MISSING: RefusalCode

class PutRequest(_message.Message):
    __slots__ = ("digest", "size", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    size: int
    data: bytes
    def __init__(self, digest: _Optional[bytes] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExpandRequest(_message.Message):
    __slots__ = ("token_ids", "media", "max_token_ids", "cache_salt", "mm_payload", "tenant")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    MM_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    media: _containers.RepeatedCompositeFieldContainer[MediaItem]
    max_token_ids: int
    cache_salt: str
    mm_payload: str
    tenant: str
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., media: _Optional[_Iterable[_Union[MediaItem, _Mapping]]] = ..., max_token_ids: _Optional[int] = ..., cache_salt: _Optional[str] = ..., mm_payload: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class ExpandResponse(_message.Message):
    __slots__ = ("token_ids", "spans", "missing", "length", "features_json")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_JSON_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    spans: _containers.RepeatedCompositeFieldContainer[MediaSpan]
    missing: _containers.RepeatedScalarFieldContainer[bytes]
    length: int
    features_json: bytes
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., spans: _Optional[_Iterable[_Union[MediaSpan, _Mapping]]] = ..., missing: _Optional[_Iterable[bytes]] = ..., length: _Optional[int] = ..., features_json: _Optional[bytes] = ...) -> None: ...

class RenderRequest(_message.Message):
    __slots__ = ("prompt",)
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    prompt: ExpandRequest
    def __init__(self, prompt: _Optional[_Union[ExpandRequest, _Mapping]] = ...) -> None: ...

class RenderResponse(_message.Message):
    __slots__ = ("part",)
    PART_FIELD_NUMBER: _ClassVar[int]
    part: ExpandResponse
    def __init__(self, part: _Optional[_Union[ExpandResponse, _Mapping]] = ...) -> None: ...

class MediaSpan(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class MediaItem(_message.Message):
    __slots__ = ("modality", "digest", "options_json")
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    modality: str
    digest: bytes
    options_json: str
    def __init__(self, modality: _Optional[str] = ..., digest: _Optional[bytes] = ..., options_json: _Optional[str] = ...) -> None: ...

class MediaKind(_message.Message):
    __slots__ = ("modality", "limit", "placeholders")
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDERS_FIELD_NUMBER: _ClassVar[int]
    modality: str
    limit: int
    placeholders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, modality: _Optional[str] = ..., limit: _Optional[int] = ..., placeholders: _Optional[_Iterable[str]] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("hello", "submit", "abort", "pool", "batch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    submit: Submit
    abort: Abort
    pool: Pool
    batch: CommandBatch
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., pool: _Optional[_Union[Pool, _Mapping]] = ..., batch: _Optional[_Union[CommandBatch, _Mapping]] = ...) -> None: ...

class CommandBatch(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[SessionRequest]
    def __init__(self, commands: _Optional[_Iterable[_Union[SessionRequest, _Mapping]]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("welcome", "frame", "refusal", "draining", "serving", "heartbeat", "cache")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    frame: StepFrame
    refusal: Refusal
    draining: Draining
    serving: ServingState
    heartbeat: Heartbeat
    cache: CacheChange
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., frame: _Optional[_Union[StepFrame, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., serving: _Optional[_Union[ServingState, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., cache: _Optional[_Union[CacheChange, _Mapping]] = ...) -> None: ...

class ProtocolVersion(_message.Message):
    __slots__ = ("major", "minor")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    major: int
    minor: int
    def __init__(self, major: _Optional[int] = ..., minor: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "coordinator_id")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    protocol: ProtocolVersion
    coordinator_id: str
    def __init__(self, protocol: _Optional[_Union[ProtocolVersion, _Mapping]] = ..., coordinator_id: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "instance_id", "model", "weight_version", "load", "draining", "serving", "heartbeat_ms", "capabilities")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    protocol: ProtocolVersion
    instance_id: str
    model: Model
    weight_version: str
    load: Load
    draining: bool
    serving: ServingState
    heartbeat_ms: int
    capabilities: EngineCapabilities
    def __init__(self, protocol: _Optional[_Union[ProtocolVersion, _Mapping]] = ..., instance_id: _Optional[str] = ..., model: _Optional[_Union[Model, _Mapping]] = ..., weight_version: _Optional[str] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., draining: bool = ..., serving: _Optional[_Union[ServingState, _Mapping]] = ..., heartbeat_ms: _Optional[int] = ..., capabilities: _Optional[_Union[EngineCapabilities, _Mapping]] = ...) -> None: ...

class EngineCapabilities(_message.Message):
    __slots__ = ("seeds", "positional_seeds", "batch_invariant", "unsupported", "unsupported_operations", "seeded_noise", "sampled_logprobs", "cache_block_tokens")
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    POSITIONAL_SEEDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_INVARIANT_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    SEEDED_NOISE_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CACHE_BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    seeds: bool
    positional_seeds: bool
    batch_invariant: bool
    unsupported: _containers.RepeatedScalarFieldContainer[str]
    unsupported_operations: _containers.RepeatedScalarFieldContainer[str]
    seeded_noise: str
    sampled_logprobs: bool
    cache_block_tokens: int
    def __init__(self, seeds: bool = ..., positional_seeds: bool = ..., batch_invariant: bool = ..., unsupported: _Optional[_Iterable[str]] = ..., unsupported_operations: _Optional[_Iterable[str]] = ..., seeded_noise: _Optional[str] = ..., sampled_logprobs: bool = ..., cache_block_tokens: _Optional[int] = ...) -> None: ...

class ServingState(_message.Message):
    __slots__ = ("epoch", "revision", "unmanaged", "paused", "sleeping", "sleep_level", "awake_parts", "weight_version", "weights_epoch", "weights_path", "weights_fault", "adapters", "records")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UNMANAGED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SLEEPING_FIELD_NUMBER: _ClassVar[int]
    SLEEP_LEVEL_FIELD_NUMBER: _ClassVar[int]
    AWAKE_PARTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FAULT_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    revision: int
    unmanaged: bool
    paused: bool
    sleeping: bool
    sleep_level: int
    awake_parts: _containers.RepeatedScalarFieldContainer[str]
    weight_version: str
    weights_epoch: int
    weights_path: str
    weights_fault: str
    adapters: _containers.RepeatedCompositeFieldContainer[LoraAdapter]
    records: _containers.RepeatedCompositeFieldContainer[OperationRecord]
    def __init__(self, epoch: _Optional[int] = ..., revision: _Optional[int] = ..., unmanaged: bool = ..., paused: bool = ..., sleeping: bool = ..., sleep_level: _Optional[int] = ..., awake_parts: _Optional[_Iterable[str]] = ..., weight_version: _Optional[str] = ..., weights_epoch: _Optional[int] = ..., weights_path: _Optional[str] = ..., weights_fault: _Optional[str] = ..., adapters: _Optional[_Iterable[_Union[LoraAdapter, _Mapping]]] = ..., records: _Optional[_Iterable[_Union[OperationRecord, _Mapping]]] = ...) -> None: ...

class OperationRecord(_message.Message):
    __slots__ = ("operation", "signatures")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    operation: bytes
    signatures: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, operation: _Optional[bytes] = ..., signatures: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("model", "epoch", "pause", "weights", "weight_version", "load_adapter", "unload_adapter", "adapters", "earlier_versions")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOAD_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    UNLOAD_ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    EARLIER_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    epoch: int
    pause: PauseState
    weights: Weights
    weight_version: str
    load_adapter: LoraAdapter
    unload_adapter: str
    adapters: AdapterSet
    earlier_versions: _containers.RepeatedCompositeFieldContainer[WeightVersion]
    def __init__(self, model: _Optional[str] = ..., epoch: _Optional[int] = ..., pause: _Optional[_Union[PauseState, _Mapping]] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., weight_version: _Optional[str] = ..., load_adapter: _Optional[_Union[LoraAdapter, _Mapping]] = ..., unload_adapter: _Optional[str] = ..., adapters: _Optional[_Union[AdapterSet, _Mapping]] = ..., earlier_versions: _Optional[_Iterable[_Union[WeightVersion, _Mapping]]] = ...) -> None: ...

class WeightVersion(_message.Message):
    __slots__ = ("epoch", "label")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    label: str
    def __init__(self, epoch: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class PauseState(_message.Message):
    __slots__ = ("paused", "sleeping", "sleep_level", "awake_parts")
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SLEEPING_FIELD_NUMBER: _ClassVar[int]
    SLEEP_LEVEL_FIELD_NUMBER: _ClassVar[int]
    AWAKE_PARTS_FIELD_NUMBER: _ClassVar[int]
    paused: bool
    sleeping: bool
    sleep_level: int
    awake_parts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paused: bool = ..., sleeping: bool = ..., sleep_level: _Optional[int] = ..., awake_parts: _Optional[_Iterable[str]] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("epoch", "path")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    path: str
    def __init__(self, epoch: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class AdapterSet(_message.Message):
    __slots__ = ("adapters",)
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    adapters: _containers.RepeatedCompositeFieldContainer[LoraAdapter]
    def __init__(self, adapters: _Optional[_Iterable[_Union[LoraAdapter, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("names", "root", "max_model_len", "max_token_id", "tokenizer_digest", "default_sampling_params_json", "max_num_seqs", "engine", "model_type", "architecture", "weights_digest", "dtype", "quantization", "tasks", "media", "pooling")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAMPLING_PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    root: str
    max_model_len: int
    max_token_id: int
    tokenizer_digest: str
    default_sampling_params_json: str
    max_num_seqs: int
    engine: str
    model_type: str
    architecture: str
    weights_digest: str
    dtype: str
    quantization: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    media: _containers.RepeatedCompositeFieldContainer[MediaKind]
    pooling: PoolingModel
    def __init__(self, names: _Optional[_Iterable[str]] = ..., root: _Optional[str] = ..., max_model_len: _Optional[int] = ..., max_token_id: _Optional[int] = ..., tokenizer_digest: _Optional[str] = ..., default_sampling_params_json: _Optional[str] = ..., max_num_seqs: _Optional[int] = ..., engine: _Optional[str] = ..., model_type: _Optional[str] = ..., architecture: _Optional[str] = ..., weights_digest: _Optional[str] = ..., dtype: _Optional[str] = ..., quantization: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., media: _Optional[_Iterable[_Union[MediaKind, _Mapping]]] = ..., pooling: _Optional[_Union[PoolingModel, _Mapping]] = ...) -> None: ...

class PoolingModel(_message.Message):
    __slots__ = ("task", "labels", "max_embed_len", "score", "separates_texts", "own_pairs", "instructions", "lower_case", "pad_token_id", "truncation_side", "width", "token_types")
    class InstructionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_EMBED_LEN_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SEPARATES_TEXTS_FIELD_NUMBER: _ClassVar[int]
    OWN_PAIRS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    LOWER_CASE_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPES_FIELD_NUMBER: _ClassVar[int]
    task: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    max_embed_len: int
    score: str
    separates_texts: bool
    own_pairs: bool
    instructions: _containers.ScalarMap[str, str]
    lower_case: bool
    pad_token_id: int
    truncation_side: str
    width: int
    token_types: bool
    def __init__(self, task: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., max_embed_len: _Optional[int] = ..., score: _Optional[str] = ..., separates_texts: bool = ..., own_pairs: bool = ..., instructions: _Optional[_Mapping[str, str]] = ..., lower_case: bool = ..., pad_token_id: _Optional[int] = ..., truncation_side: _Optional[str] = ..., width: _Optional[int] = ..., token_types: bool = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "slots", "prompt_token_ids", "sampling_params", "priority", "cache_salt", "lora", "session_id", "data_parallel_rank", "trace_headers", "reasoning_ended", "reasoning_parser_kwargs_json", "resumed_after_ms", "tenant", "media", "media_end", "sampled_logprobs", "packed_prompt_token_ids")
    class TraceHeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PARAMS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    LORA_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_PARALLEL_RANK_FIELD_NUMBER: _ClassVar[int]
    TRACE_HEADERS_FIELD_NUMBER: _ClassVar[int]
    REASONING_ENDED_FIELD_NUMBER: _ClassVar[int]
    REASONING_PARSER_KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUMED_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_FIELD_NUMBER: _ClassVar[int]
    MEDIA_END_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PACKED_PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling_params: SamplingParams
    priority: int
    cache_salt: str
    lora: LoraAdapter
    session_id: str
    data_parallel_rank: int
    trace_headers: _containers.ScalarMap[str, str]
    reasoning_ended: bool
    reasoning_parser_kwargs_json: str
    resumed_after_ms: int
    tenant: str
    media: _containers.RepeatedCompositeFieldContainer[MediaItem]
    media_end: int
    sampled_logprobs: bool
    packed_prompt_token_ids: bytes
    def __init__(self, request_id: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., sampling_params: _Optional[_Union[SamplingParams, _Mapping]] = ..., priority: _Optional[int] = ..., cache_salt: _Optional[str] = ..., lora: _Optional[_Union[LoraAdapter, _Mapping]] = ..., session_id: _Optional[str] = ..., data_parallel_rank: _Optional[int] = ..., trace_headers: _Optional[_Mapping[str, str]] = ..., reasoning_ended: bool = ..., reasoning_parser_kwargs_json: _Optional[str] = ..., resumed_after_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., media: _Optional[_Iterable[_Union[MediaItem, _Mapping]]] = ..., media_end: _Optional[int] = ..., sampled_logprobs: bool = ..., packed_prompt_token_ids: _Optional[bytes] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("request_id", "slots", "lengths", "token_ids", "params", "second_begins", "priority", "cache_salt", "lora", "trace_headers", "resumed_after_ms")
    class TraceHeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SECOND_BEGINS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    LORA_FIELD_NUMBER: _ClassVar[int]
    TRACE_HEADERS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    params: PoolingParams
    second_begins: _containers.RepeatedScalarFieldContainer[int]
    priority: int
    cache_salt: str
    lora: LoraAdapter
    trace_headers: _containers.ScalarMap[str, str]
    resumed_after_ms: int
    def __init__(self, request_id: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., params: _Optional[_Union[PoolingParams, _Mapping]] = ..., second_begins: _Optional[_Iterable[int]] = ..., priority: _Optional[int] = ..., cache_salt: _Optional[str] = ..., lora: _Optional[_Union[LoraAdapter, _Mapping]] = ..., trace_headers: _Optional[_Mapping[str, str]] = ..., resumed_after_ms: _Optional[int] = ...) -> None: ...

class PoolingParams(_message.Message):
    __slots__ = ("task", "dimensions", "use_activation", "dtype")
    TASK_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    USE_ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    task: str
    dimensions: int
    use_activation: bool
    dtype: str
    def __init__(self, task: _Optional[str] = ..., dimensions: _Optional[int] = ..., use_activation: bool = ..., dtype: _Optional[str] = ...) -> None: ...

class Pooled(_message.Message):
    __slots__ = ("shape", "data", "cached_tokens")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    cached_tokens: int
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class LoraAdapter(_message.Message):
    __slots__ = ("name", "id", "path", "is_3d_lora_weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    IS_3D_LORA_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    path: str
    is_3d_lora_weight: bool
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., path: _Optional[str] = ..., is_3d_lora_weight: bool = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slots: _Optional[_Iterable[int]] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "seed", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "logprob_token_ids", "prompt_logprob_token_ids", "prompt_logprob_start", "logit_bias", "allowed_token_ids", "bad_words", "structured_outputs", "thinking_token_budget", "repetition_detection", "watermarking", "skip_reading_prefix_cache", "routed_experts_prompt_start", "trace_decode_token_ids", "kv_transfer_params_json", "ec_transfer_params_json", "extra_args_json")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROB_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROB_START_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    THINKING_TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    REPETITION_DETECTION_FIELD_NUMBER: _ClassVar[int]
    WATERMARKING_FIELD_NUMBER: _ClassVar[int]
    SKIP_READING_PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    ROUTED_EXPERTS_PROMPT_START_FIELD_NUMBER: _ClassVar[int]
    TRACE_DECODE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSFER_PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    EC_TRANSFER_PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    EXTRA_ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    ignore_eos: bool
    max_tokens: int
    min_tokens: int
    logprobs: int
    prompt_logprobs: int
    logprob_token_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_logprob_token_ids: _containers.RepeatedCompositeFieldContainer[TokenIds]
    prompt_logprob_start: int
    logit_bias: _containers.ScalarMap[int, float]
    allowed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    bad_words: _containers.RepeatedScalarFieldContainer[str]
    structured_outputs: StructuredOutputs
    thinking_token_budget: int
    repetition_detection: RepetitionDetection
    watermarking: bool
    skip_reading_prefix_cache: bool
    routed_experts_prompt_start: int
    trace_decode_token_ids: _containers.RepeatedScalarFieldContainer[int]
    kv_transfer_params_json: str
    ec_transfer_params_json: str
    extra_args_json: str
    def __init__(self, presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., ignore_eos: bool = ..., max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., logprobs: _Optional[int] = ..., prompt_logprobs: _Optional[int] = ..., logprob_token_ids: _Optional[_Iterable[int]] = ..., prompt_logprob_token_ids: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ..., prompt_logprob_start: _Optional[int] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., allowed_token_ids: _Optional[_Iterable[int]] = ..., bad_words: _Optional[_Iterable[str]] = ..., structured_outputs: _Optional[_Union[StructuredOutputs, _Mapping]] = ..., thinking_token_budget: _Optional[int] = ..., repetition_detection: _Optional[_Union[RepetitionDetection, _Mapping]] = ..., watermarking: bool = ..., skip_reading_prefix_cache: bool = ..., routed_experts_prompt_start: _Optional[int] = ..., trace_decode_token_ids: _Optional[_Iterable[int]] = ..., kv_transfer_params_json: _Optional[str] = ..., ec_transfer_params_json: _Optional[str] = ..., extra_args_json: _Optional[str] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StructuredOutputs(_message.Message):
    __slots__ = ("json_schema", "regex", "choice", "grammar", "json_object", "structural_tag", "disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    STRUCTURAL_TAG_FIELD_NUMBER: _ClassVar[int]
    DISABLE_ANY_WHITESPACE_FIELD_NUMBER: _ClassVar[int]
    DISABLE_ADDITIONAL_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    WHITESPACE_PATTERN_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    regex: str
    choice: Choices
    grammar: str
    json_object: bool
    structural_tag: str
    disable_any_whitespace: bool
    disable_additional_properties: bool
    whitespace_pattern: str
    def __init__(self, json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., choice: _Optional[_Union[Choices, _Mapping]] = ..., grammar: _Optional[str] = ..., json_object: bool = ..., structural_tag: _Optional[str] = ..., disable_any_whitespace: bool = ..., disable_additional_properties: bool = ..., whitespace_pattern: _Optional[str] = ...) -> None: ...

class Choices(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class RepetitionDetection(_message.Message):
    __slots__ = ("max_pattern_size", "min_pattern_size", "min_count")
    MAX_PATTERN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_PATTERN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    max_pattern_size: int
    min_pattern_size: int
    min_count: int
    def __init__(self, max_pattern_size: _Optional[int] = ..., min_pattern_size: _Optional[int] = ..., min_count: _Optional[int] = ...) -> None: ...

class StepFrame(_message.Message):
    __slots__ = ("slots", "counts", "token_ids", "finishes", "prefills", "logprobs", "load", "weight_version", "sampled_logprobs")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISHES_FIELD_NUMBER: _ClassVar[int]
    PREFILLS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    finishes: _containers.RepeatedCompositeFieldContainer[Finish]
    prefills: _containers.RepeatedCompositeFieldContainer[PrefillInfo]
    logprobs: _containers.RepeatedCompositeFieldContainer[Logprobs]
    load: Load
    weight_version: str
    sampled_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., token_ids: _Optional[_Iterable[int]] = ..., finishes: _Optional[_Iterable[_Union[Finish, _Mapping]]] = ..., prefills: _Optional[_Iterable[_Union[PrefillInfo, _Mapping]]] = ..., logprobs: _Optional[_Iterable[_Union[Logprobs, _Mapping]]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., weight_version: _Optional[str] = ..., sampled_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class CacheChange(_message.Message):
    __slots__ = ("cleared", "removed", "stored")
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    cleared: bool
    removed: _containers.RepeatedScalarFieldContainer[int]
    stored: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cleared: bool = ..., removed: _Optional[_Iterable[int]] = ..., stored: _Optional[_Iterable[int]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("slot", "reason", "eos_token_id", "stop_token_id", "error_message", "kv_transfer_params_json", "handed_back", "pooled")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSFER_PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    HANDED_BACK_FIELD_NUMBER: _ClassVar[int]
    POOLED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    reason: FinishReason
    eos_token_id: int
    stop_token_id: int
    error_message: str
    kv_transfer_params_json: str
    handed_back: bool
    pooled: Pooled
    def __init__(self, slot: _Optional[int] = ..., reason: _Optional[_Union[FinishReason, str]] = ..., eos_token_id: _Optional[int] = ..., stop_token_id: _Optional[int] = ..., error_message: _Optional[str] = ..., kv_transfer_params_json: _Optional[str] = ..., handed_back: bool = ..., pooled: _Optional[_Union[Pooled, _Mapping]] = ...) -> None: ...

class PrefillInfo(_message.Message):
    __slots__ = ("slot", "cached_tokens", "prompt_logprobs", "created_cache_tokens")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CREATED_CACHE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    cached_tokens: int
    prompt_logprobs: LogprobRows
    created_cache_tokens: int
    def __init__(self, slot: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., prompt_logprobs: _Optional[_Union[LogprobRows, _Mapping]] = ..., created_cache_tokens: _Optional[int] = ...) -> None: ...

class Logprobs(_message.Message):
    __slots__ = ("slot", "rows")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    rows: LogprobRows
    def __init__(self, slot: _Optional[int] = ..., rows: _Optional[_Union[LogprobRows, _Mapping]] = ...) -> None: ...

class LogprobRows(_message.Message):
    __slots__ = ("width", "token_ids", "logprobs", "sampled_ranks")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_RANKS_FIELD_NUMBER: _ClassVar[int]
    width: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    sampled_ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, width: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., sampled_ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("running", "waiting", "kv_cache_usage")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_USAGE_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    kv_cache_usage: float
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_cache_usage: _Optional[float] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("slots", "code", "message", "param", "missing")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    code: RefusalCode
    message: str
    param: str
    missing: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, slots: _Optional[_Iterable[int]] = ..., code: _Optional[_Union[RefusalCode, str]] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., missing: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("deadline_ms",)
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    deadline_ms: int
    def __init__(self, deadline_ms: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("load", "steps", "stalled_ms", "allowance_ms", "engine_cpu_ms")
    LOAD_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STALLED_MS_FIELD_NUMBER: _ClassVar[int]
    ALLOWANCE_MS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_CPU_MS_FIELD_NUMBER: _ClassVar[int]
    load: Load
    steps: int
    stalled_ms: int
    allowance_ms: int
    engine_cpu_ms: int
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ..., steps: _Optional[int] = ..., stalled_ms: _Optional[int] = ..., allowance_ms: _Optional[int] = ..., engine_cpu_ms: _Optional[int] = ...) -> None: ...
