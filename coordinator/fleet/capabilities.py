"""Capabilities that several engines have in common, and those that a request needs."""

import json
from collections.abc import Iterable

from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import IMAGE, IMAGE_EMBEDS, MediaContent
from tokenwire.protocol.engine_defaults import ENGINE_DEFAULTS
from tokenwire.protocol.seeds import has_seed
from tokenwire.v1 import inference_pb2 as pb

_TRANSFERS = ("do_remote_prefill", "do_remote_decode")
"""Keys of kv_transfer_params with which an engine hands a prompt over: others change nothing without a connector."""
MEDIA_OPTIONS = "mm_processor_kwargs"
"""What a request needs whose media have options, media_io_kwargs among them."""
MEDIA_FEATURES = "mm_payload"
"""What a rendered request with media needs."""
_MODALITIES = frozenset({IMAGE, IMAGE_EMBEDS})
_REMEDIES = {
    "seed": "On CPUs, a worker without --worker-extension-cls after `--` does.",
    "prompt_logprobs": "On CPUs, a worker without --enable-lora after `--` does.",
    "prompt_logprob_token_ids": "On CPUs, a worker without --enable-lora after `--` may.",
    "kv_transfer_params": "A worker with --kv-transfer-config after `--` does.",
    "lora": "A worker with --enable-lora after `--` does.",
    "token_types": "A tokenwire worker does.",
    MEDIA_OPTIONS: "A tokenwire worker does.",
    "structured_outputs": "A simulated engine does where xgrammar is installed.",
    "sleep": "A worker with --enable-sleep-mode after `--` does.",
    "weight_transfer": "A worker with --weight-transfer-config after `--` does.",
}
"""Which worker supports what an engine lacks for its configuration."""


def common_capabilities(engines: Iterable[pb.EngineCapabilities]) -> pb.EngineCapabilities:
    """Return the capabilities common to all engines; none without engines."""
    each_engine = list(engines)
    return pb.EngineCapabilities(
        seeds=bool(each_engine) and all(each.seeds for each in each_engine),
        positional_seeds=bool(each_engine) and all(each.positional_seeds for each in each_engine),
        batch_invariant=bool(each_engine) and all(each.batch_invariant for each in each_engine),
    )


def needs_of(submission: Submission) -> frozenset[str]:
    """Return what a request needs of an engine, by the names with which engines announce what they lack.

    A value that is an engine's default needs nothing.
    """
    params = submission.sampling_params
    given = ((field.name, value) for field, value in params.ListFields())
    needs = {name.removesuffix("_json") for name, value in given if value != ENGINE_DEFAULTS.get(name)}
    if not has_seed(params):
        needs.discard("seed")
    if "kv_transfer_params" in needs and not _transfers(params.kv_transfer_params_json):
        needs.discard("kv_transfer_params")
    if kind := params.structured_outputs.WhichOneof("constraint"):
        needs.add(f"structured_outputs.{kind}")
    if submission.lora.id:
        needs.add("lora")
    if submission.media is not None:
        needs.update(media_needs(submission.media.items, submission.media.options_json))
    if submission.pooled is not None and submission.pooled.second_begins:
        needs.add("token_types")
    return frozenset(needs)


def media_needs(items: Iterable[MediaContent], options_json: str | None) -> set[str]:
    """Return what media of a request need."""
    needs = {item.modality for item in items}
    if options_json is not None:
        needs.add(MEDIA_OPTIONS)
    return needs


def lacks_of(welcome: pb.Welcome) -> frozenset[str]:
    """Return what of requests an engine cannot serve, as it announces it, and which media it does not take of those
    that others of its kind may.
    """
    lacks = frozenset(welcome.capabilities.unsupported)
    if not welcome.model.media:
        return lacks
    return lacks | _MODALITIES.difference(kind.modality for kind in welcome.model.media)


def remedy_for(lacking: str) -> str:
    """Return a sentence, after a space, on which worker supports what an engine lacks; empty if it is its vLLM's."""
    return f" {_REMEDIES[lacking]}" if lacking in _REMEDIES else ""


def _transfers(kv_transfer_params: str) -> bool:
    """Return whether a request's prompt is to come from another engine, or to go to one."""
    given = json.loads(kv_transfer_params)
    return isinstance(given, dict) and any(given.get(key) for key in _TRANSFERS)
