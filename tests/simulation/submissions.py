"""What the submissions of a request ask workers for: the same each time, but for what a continuation must change."""

from collections import Counter
from dataclasses import dataclass

from google.protobuf.message import Message

from tests.simulation.sampling import DRAWN
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb

RESUBMITTED = tuple(f"resubmitted with {name}" for name in DRAWN)
"""All that have a name: what a request had that was resumed."""
_OWN = ("slots", "prompt_token_ids", "packed_prompt_token_ids", "resumed_after_ms", "sampling_params")
_OWN_PARAMETERS = ("max_tokens", "min_tokens", "seed")
_ONCE = ("prompt_logprobs", "prompt_logprob_start", "prompt_logprob_token_ids")
"""Of the prompt: left out once its client has them."""


@dataclass(frozen=True, slots=True)
class _FirstSubmission:
    """The first of a request."""

    submit: pb.Submit
    place: int | None
    """The position of its first choice; None: not known."""


class SubmissionLedger:
    """Compares each submission of a request with its first one."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self._first: dict[str, _FirstSubmission] = {}

    def problem(self, submit: pb.Submit, place: int | None) -> str:
        """Return what a submission asks for otherwise than the first one of its request; empty if nothing.

        `place`: the position of its first choice; None: not known.
        """
        first = self._first.setdefault(submit.request_id, _FirstSubmission(submit, place))
        if first.submit is submit:
            return ""
        if submit.HasField("resumed_after_ms"):
            self.reached.update(f"resubmitted with {field.name}" for field, _ in submit.sampling_params.ListFields())
        wrong = [
            *_differences(first.submit, submit),
            *_length_problems(first.submit, submit),
            *_seeds(first, submit, place),
        ]
        return f"{submit.request_id} was sent again with another {', '.join(wrong)}" if wrong else ""


def _differences(one: pb.Submit, other: pb.Submit) -> list[str]:
    """Return the fields that are to be equal and are not."""
    params, others = one.sampling_params, other.sampling_params
    left_out = [name for name in _ONCE if name not in {field.name for field, _ in others.ListFields()}]
    return _unequal(one, other, _OWN) + _unequal(params, others, (*_OWN_PARAMETERS, *left_out))


def _unequal(one: Message, other: Message, but: tuple[str, ...]) -> list[str]:
    fields = (
        {field.name: value for field, value in each.ListFields() if field.name not in but} for each in (one, other)
    )
    before, after = fields
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def _length_problems(first: pb.Submit, submit: pb.Submit) -> list[str]:
    """Return what does not follow from how many tokens of the reply are in the prompt."""
    prompt, before, after = list(prompt_ids(first)), first.sampling_params, submit.sampling_params
    done = len(prompt_ids(submit)) - len(prompt)
    expected = {
        "prompt": (list(prompt_ids(submit)[: len(prompt)]), prompt),
        "max_tokens": (after.max_tokens, before.max_tokens - done * before.HasField("max_tokens")),
        "min_tokens": (after.min_tokens, max(0, before.min_tokens - done)),
    }
    return [name for name, (actual, due) in expected.items() if actual != due]


def _seeds(first: _FirstSubmission, submit: pb.Submit, place: int | None) -> list[str]:
    """Return "seed" if it is not that of the request, counted on to the position of its first choice."""
    before, after = first.submit.sampling_params, submit.sampling_params
    if before.HasField("seed") != after.HasField("seed"):
        return ["seed"]
    if not before.HasField("seed") or first.place is None or place is None:
        return []
    return ["seed"] if after.seed - place != before.seed - first.place else []
