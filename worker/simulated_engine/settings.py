"""Settings of a simulated engine, checked once."""

from dataclasses import dataclass, field
from pathlib import Path

from tokenwire.worker.simulated_engine.faults import FaultPlan

BLOCK_SIZE = 16
"""Tokens in one block of the KV cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How a simulated engine behaves. Raises ValueError with a message that names the setting."""

    model_dir: Path | None = None
    """Whose tokenizer files are served; None: a built-in tokenizer of 256 bytes and the ChatML tokens."""
    served_model_names: tuple[str, ...] = ()
    """Names that requests may use; empty: the directory's name, or "simulated"."""
    max_model_len: int | None = None
    """Longest prompt plus completion; None: the model's config, or 32768."""
    seed: int = 0
    """Another seed is another model: it says something else to every prompt."""
    step_ms: float = 10.0
    """Time of one engine step; 0: as fast as possible, and then prefill takes no time either."""
    prefill_tokens_per_s: float = 20000.0
    """Prompt tokens computed in a second, in chunks of a step; 0: a prompt takes no time."""
    max_num_seqs: int = 256
    """Sequences that run at the same time; more wait."""
    max_queue: int = 0
    """Sequences that may wait beyond those that can run; more are refused. 0: no limit."""
    kv_tokens: int | None = None
    """Tokens that the KV cache holds; None: 524288, or one context when that is longer."""
    kv_events: bool = False
    """Tell what the KV cache holds."""
    script: tuple[int, ...] | None = None
    """Say these ids, over and over, instead of seeded ones. A prompt that ends with the script's beginning is gone on
    with behind that: a reply that was cut, or that is continued elsewhere."""
    eos_rate: float = 0.0
    """Probability that a seeded token is the end of the sequence."""
    generators: bool = False
    """Draw the tokens of sampled requests, and of those with penalties or the like, from a generator for each sequence.
    Then only a run from the start says the same again, and one from prompt and tokens says something else."""
    faults: FaultPlan = field(default_factory=FaultPlan)
    """What goes wrong, and when."""

    def __post_init__(self) -> None:
        _check(self.max_model_len is None or self.max_model_len >= 2, "max_model_len", "at least 2", self.max_model_len)
        _check(0 <= self.step_ms < float("inf"), "step_ms", "at least 0", self.step_ms)
        rate = self.prefill_tokens_per_s
        _check(0 <= rate < float("inf"), "prefill_tokens_per_s", "at least 0", rate)
        _check(self.max_num_seqs >= 1, "max_num_seqs", "at least 1", self.max_num_seqs)
        _check(self.max_queue >= 0, "max_queue", "at least 0", self.max_queue)
        least_kv = 2 * BLOCK_SIZE
        _check(
            self.kv_tokens is None or self.kv_tokens >= least_kv, "kv_tokens", f"at least {least_kv}", self.kv_tokens
        )
        _check(self.script is None or len(self.script) > 0, "script", "at least one token id", self.script)
        _check(all(token >= 0 for token in self.script or ()), "script", "token ids", self.script)
        _check(0 <= self.eos_rate <= 1, "eos_rate", "between 0 and 1", self.eos_rate)
        _check(all(self.served_model_names), "served_model_names", "names, none of them empty", self.served_model_names)

    @property
    def prefill_per_step(self) -> int | None:
        """Prompt tokens that one step computes; None: any number."""
        if self.step_ms == 0 or self.prefill_tokens_per_s == 0:
            return None
        return max(1, round(self.prefill_tokens_per_s * self.step_ms / 1000))


def _check(holds: bool, name: str, wanted: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}, not {value!r}")
