"""What several engines can do is what each of them can; what a request needs is named as engines name it."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.capabilities import common_capabilities, lacks_of, needs_of, remedy_for
from tokenwire.coordinator.fleet.submission import PooledInputs, Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.v1 import inference_pb2 as pb

ALL = pb.EngineCapabilities(seeds=True, positional_seeds=True, batch_invariant=True)


def test_one_engine_that_cannot_is_enough() -> None:
    """A request may run on any of them, and move to any other."""
    assert common_capabilities([ALL, ALL]) == ALL
    for name in ("seeds", "positional_seeds", "batch_invariant"):
        limited = pb.EngineCapabilities()
        limited.CopyFrom(ALL)
        setattr(limited, name, False)
        assert common_capabilities([ALL, limited]) == limited


def test_without_engines_nothing_is_promised() -> None:
    """Workers that come later may be of any kind."""
    assert common_capabilities([]) == pb.EngineCapabilities()


@pytest.mark.parametrize(
    ("params", "lora", "needs"),
    [
        ({"temperature": 0.0, "max_tokens": 5}, 0, {"temperature", "max_tokens"}),
        ({"seed": 5}, 0, {"seed"}),
        ({"seed": 5, "temperature": 0.0}, 0, {"temperature"}),
        ({"watermarking": True}, 7, {"watermarking", "lora"}),
        (
            {"structured_outputs": pb.StructuredOutputs(regex="a")},
            0,
            {"structured_outputs", "structured_outputs.regex"},
        ),
        ({"kv_transfer_params_json": '{"do_remote_decode": true}'}, 0, {"kv_transfer_params"}),
        ({"kv_transfer_params_json": '{"do_remote_prefill": false, "a": 1}'}, 0, set()),
        ({"extra_args_json": '{"a": 1}'}, 0, {"extra_args"}),
        ({"min_p": 0.0, "top_p": 1.0, "top_k": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0}, 0, set()),
        ({"min_p": 0.1, "repetition_penalty": 0.5}, 0, {"min_p", "repetition_penalty"}),
    ],
)
def test_a_request_needs_what_it_has(params: dict[str, Any], lora: int, needs: set[str]) -> None:
    """A greedy one draws nothing by its seed; transfers that ask for none, and defaults, change nothing."""
    submission = Submission("r", [1], pb.SamplingParams(**params), lora=pb.LoraAdapter(id=lora))

    assert needs_of(submission) == needs


@pytest.mark.parametrize(("second_begins", "needs"), [([2], {"token_types"}), ([], set())])
def test_the_types_of_pairs_are_a_need(second_begins: list[int], needs: set[str]) -> None:
    """Plain vLLM servers have no field for them."""
    pooled = PooledInputs(pb.PoolingParams(task="classify"), [3], second_begins)

    assert needs_of(Submission("r", [1, 2, 3], pooled=pooled)) == needs


def test_what_an_engine_lacks_for_its_options_has_a_remedy() -> None:
    """What its vLLM lacks has none but another vLLM, which the error names."""
    assert "--enable-sleep-mode" in remedy_for("sleep")
    assert remedy_for("watermarking") == ""


def test_media_are_a_need_by_their_kind() -> None:
    """So a fleet may have workers that take pictures, and some that take their embeddings."""
    media = MediaPrompt([MediaContent(b"x", "image_embeds")], [1], 1, [(0, 1)], "{}")
    assert needs_of(Submission("r", [1], media=media)) == {"image_embeds", "mm_processor_kwargs"}


@pytest.mark.parametrize(
    ("kinds", "lacks"),
    [
        ([], {"lora"}),
        (["image"], {"lora", "image_embeds"}),
        (["image_embeds"], {"lora", "image"}),
        (["image", "image_embeds"], {"lora"}),
    ],
)
def test_a_worker_lacks_the_kinds_of_media_that_it_does_not_announce(kinds: list[str], lacks: set[str]) -> None:
    """One that takes text only lacks none of them by name: it gets no media at all."""
    welcome = pb.Welcome(capabilities=pb.EngineCapabilities(unsupported=["lora"]))
    welcome.model.media.extend(pb.MediaKind(modality=kind) for kind in kinds)
    assert lacks_of(welcome) == lacks
