"""Settings of a simulated engine, validated once."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, check_bounds, option, shared
from tokenwire.worker.media.settings import MediaMemory
from tokenwire.worker.simulated_engine.faults import FaultPlan
from tokenwire.worker.simulated_engine.reply_rules import ReplyRule, read_reply_rules

BLOCK_SIZE = 16
"""Tokens per block of the KV cache."""


def _read_script(path: Path) -> tuple[int, ...]:
    try:
        ids = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise ValueError(f"{path} must hold a list of token ids")
    return tuple(ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """Settings of a simulated engine."""

    model_dir: Path | None = None
    """Directory of the tokenizer files; None: a built-in tokenizer of 256 bytes and the ChatML tokens."""
    served_model_names: tuple[str, ...] = shared((), "--served-model-name")
    """Names that requests may use; empty: the directory's name, or "simulated"."""
    kv_events: bool = shared(False, "--kv-events")
    received_media_bytes: int = shared(MediaMemory().memory_bytes, "--received-media-mb")
    script: tuple[int, ...] | None = option(
        None,
        Option(
            "--sim-script",
            "JSON list of token ids to generate, repeated.",
            Section.SIMULATION,
            path="existing file",
            parse=_read_script,
        ),
    )
    """A prompt that ends with the script's beginning is continued from there, as for a reply that was cut or moved to
    another engine."""
    replies: tuple[ReplyRule, ...] = option(
        (),
        Option(
            "--sim-replies",
            'JSON list of {"prompt": EXPRESSION, "reply": TEXT}: the first whose regular expression is found in a '
            "prompt's text gives the reply.",
            Section.SIMULATION,
            path="existing file",
            default_text="none",
            parse=read_reply_rules,
        ),
    )
    """Other prompts get what they get without rules."""
    step_ms: float = option(
        10.0,
        Option("--sim-step-ms", "Duration of a step in milliseconds.", Section.SIMULATION, bounds=Bounds(at_least=0)),
    )
    """0: as fast as possible, with prefill taking no time either."""
    prefill_tokens_per_s: float = option(
        20_000.0,
        Option(
            "--sim-prefill-rate",
            "Prompt tokens per second; 0: unlimited.",
            Section.SIMULATION,
            bounds=Bounds(at_least=0),
        ),
    )
    """Prompts are computed in chunks of a step."""
    kv_tokens: int | None = option(
        None,
        Option(
            "--sim-kv-tokens",
            "Size of the KV cache in tokens.",
            Section.SIMULATION,
            bounds=Bounds(at_least=2 * BLOCK_SIZE),
            default_text="524288, or one context when that is longer",
        ),
    )
    max_num_seqs: int = option(
        256, Option("--sim-max-num-seqs", "Maximum running sequences.", Section.SIMULATION, bounds=Bounds(at_least=1))
    )
    max_queue: int = option(
        0,
        Option(
            "--sim-max-queue", "Maximum queued sequences; 0: unlimited.", Section.SIMULATION, bounds=Bounds(at_least=0)
        ),
    )
    max_model_len: int | None = option(
        None,
        Option(
            "--sim-max-model-len",
            "Maximum context length in tokens.",
            Section.SIMULATION,
            bounds=Bounds(at_least=2),
            default_text="the model's, or 32768",
        ),
    )
    image_tokens: int = option(
        0,
        Option(
            "--sim-image-tokens",
            "Prompt tokens of a picture; 0: the model takes text only.",
            Section.SIMULATION,
            bounds=Bounds(at_least=0, at_most=65536),
        ),
    )
    image_ms: float = option(
        0.0,
        Option(
            "--sim-image-ms",
            "Milliseconds that it takes to process a picture, the first time.",
            Section.SIMULATION,
            bounds=Bounds(at_least=0),
        ),
    )
    image_embeds: bool = option(
        False,
        Option(
            "--sim-image-embeds",
            "Take embeddings in the place of pictures, as a worker does with --enable-mm-embeds after `--`.",
            Section.SIMULATION,
        ),
    )
    seed: int = option(
        0, Option("--sim-seed", "Seed of the model: another one generates other tokens.", Section.SIMULATION)
    )
    eos_rate: float = option(
        0.0,
        Option(
            "--sim-eos-rate",
            "Probability that a token ends its sequence.",
            Section.SIMULATION,
            bounds=Bounds(at_least=0, at_most=1),
        ),
    )
    embedding_width: int = option(
        0,
        Option(
            "--sim-embedding-width",
            "Pool instead of generating: width of the embeddings; 0: generate.",
            Section.SIMULATION,
            bounds=Bounds(at_least=0, at_most=65_536),
        ),
    )
    pooling_task: Literal["embed", "classify"] = option(
        "embed",
        Option(
            "--sim-pooling-task",
            "What a simulated engine that pools does: embed, or classify, with as many classes as its width.",
            Section.SIMULATION,
        ),
    )
    seeds: Literal["positional", "generator"] = option(
        "positional",
        Option(
            "--sim-seeds",
            "Source of sampling noise: token ids and seed alone, or a generator per request, whose state only"
            " an uninterrupted run reaches.",
            Section.SIMULATION,
        ),
    )
    unsupported: tuple[str, ...] = option(
        (),
        Option(
            "--sim-unsupported",
            "What to announce as missing, as older or otherwise configured engines do: lora, seed, watermarking, "
            "structured_outputs.regex …; repeat for more.",
            Section.SIMULATION,
            repeated=True,
        ),
    )
    token_log: Path | None = option(
        None,
        Option(
            "--sim-token-log",
            "File to which prompts and sampled tokens are appended, as JSON lines, for tests of what passes them on.",
            Section.SIMULATION,
            path="any",
            default_text="none",
        ),
    )
    faults: FaultPlan = option(
        FaultPlan(),
        Option(
            "--sim-fault",
            "Fault to inject, KIND@TRIGGER=N, for example crash@tokens=500; repeat for more.",
            Section.SIMULATION,
            repeated=True,
            parse=FaultPlan.parse,
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.script is not None and (not self.script or any(token < 0 for token in self.script)):
            raise InvalidRequest(f"--sim-script must be token ids, at least one, not {self.script!r}")
        if self.pooling_task == "classify" and not self.embedding_width:
            raise InvalidRequest("--sim-pooling-task classify needs --sim-embedding-width, the number of classes")
        if not all(self.served_model_names):
            raise InvalidRequest("--served-model-name must not be empty")

    @property
    def generators(self) -> bool:
        """Whether sequences whose noise has a state draw it from a generator of their own.

        Then only a run from the start generates the same tokens; one that continues from prompt and tokens does not.
        """
        return self.seeds == "generator"

    @property
    def weights_digest(self) -> str:
        """Digest of what takes the place of weights: the seed, the script and the replies."""
        weights = (self.seed, self.script, self.eos_rate, *self.replies)
        return hashlib.sha256(repr(("simulated", *weights)).encode()).hexdigest()

    @property
    def prefill_per_step(self) -> int | None:
        """Prompt tokens that one step computes; None: any number."""
        if self.step_ms == 0 or self.prefill_tokens_per_s == 0:
            return None
        return max(1, round(self.prefill_tokens_per_s * self.step_ms / 1000))
