"""The revision of a model: what the tokens of a worker depend on, and what may differ between workers of one name."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwire.v1 import inference_pb2 as pb

_DIGEST_CHARS = 10
_OPERATION = "operation"
"""Stands for weights that an admin operation brought, where it is followed: then workers are kept equal."""
_DIRECTORY = "directory:"
"""Prefix of the tokenizer digest of a plain vLLM server, whose tokenizer is the coordinator's own."""
_ALWAYS_ANNOUNCED = ("tokenizer", "weights", "dtype", "quantization")
"""A simulated engine has no architecture."""


@dataclass(frozen=True, slots=True)
class ModelRevision:
    """What a worker serves: of two with one revision, either may continue what the other began.

    An empty field is not known: an older worker announces no weights, a plain vLLM server neither these nor its dtype.
    """

    architecture: str = ""
    tokenizer: str = ""
    """Digest of the tokenizer files, with the chat template."""
    dtype: str = ""
    quantization: str = ""
    weights: str = ""
    """Digest of the checkpoint, or what replaced it."""
    root: str = ""
    """Where the weights came from, if they have no digest."""
    key: str = field(init=False, compare=False)
    """Digest of all of it, which is cheaper to look up by."""
    digest: str = field(init=False, compare=False)
    """The beginning of that: short and printable."""

    def __post_init__(self) -> None:
        fields = (self.architecture, self.tokenizer, self.dtype, self.quantization, self.weights, self.root)
        key = hashlib.sha256("\0".join(fields).encode()).hexdigest()
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "digest", key[:_DIGEST_CHARS])

    @classmethod
    def of(
        cls, model: pb.Model, serving: pb.ServingState | None = None, *, follows_operations: bool = True
    ) -> "ModelRevision":
        """Return the revision of a worker that announces a model, in a serving state or as it started.

        Weights that an operation brought are those of all workers to a coordinator that follows operations: it knows
        who is to have them. To another one they are those of this operation, which others may not have got.
        """
        weights = model.weights_digest
        if serving is not None and (serving.weights_epoch or serving.weights_path):
            is_for_all = serving.weights_epoch and follows_operations
            weights = _OPERATION if is_for_all else f"{_OPERATION} {serving.weights_epoch} {serving.weights_path}"
        tokenizer = model.tokenizer_digest
        return cls(
            architecture=model.architecture,
            tokenizer="" if tokenizer.startswith(_DIRECTORY) else tokenizer,
            dtype=model.dtype,
            quantization=model.quantization,
            weights=weights,
            root="" if weights else model.root,
        )

    def __str__(self) -> str:
        return self.digest

    @property
    def tokenizer_only(self) -> "ModelRevision":
        """The revisions with this tokenizer, whatever the rest: what a prompt depends on."""
        return ModelRevision(tokenizer=self.tokenizer)

    @property
    def unknown(self) -> Sequence[str]:
        """What every worker announces that can, and this one did not."""
        return [name for name in _ALWAYS_ANNOUNCED if not getattr(self, name)]

    @property
    def is_known(self) -> bool:
        """Whether its weights are known."""
        return bool(self.weights)

    def accepts(self, other: "ModelRevision") -> bool:
        """Return whether a worker of this revision may continue what one of the other began.

        What is not known of one of them is taken to be equal, so that a rolling upgrade ends no reply: who does not say
        what it can say is not served. Weights of an operation that is followed are for all workers: which of them have
        them already is not asked here.
        """
        return self == other or (
            _equal(self.architecture, other.architecture)
            and _equal(self.tokenizer, other.tokenizer)
            and _equal(self.dtype, other.dtype)
            and _equal(self.quantization, other.quantization)
            and (_OPERATION in (self.weights, other.weights) or _equal(self.weights, other.weights))
            and _equal(self.root, other.root)
        )


def _equal(one: str, other: str) -> bool:
    return one == other or not one or not other
