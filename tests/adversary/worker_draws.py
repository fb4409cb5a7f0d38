"""Draws hostile workers from seeds: what one says of itself, what it answers to requests, and its metrics.

One file, since each kind of lie is drawn with the others.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tests.adversary.call_lies import (
    EXPANSIONS,
    large_tokenizer,
    multiplying_tokenizer,
    tokenizer_with_large_template,
    tokenizer_with_slow_expression,
)
from tests.adversary.hostile_worker import HANG_UP, HostileWorker
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

MOST = 2**32 - 1
"""The largest uint32."""
_TOKENS = 300
_HUGE = 500_000
"""Tokens of a frame of some megabytes."""
_FLOODS = (10_000_000, 30_000_000)
"""Tokens of frames of as many bytes: below and beyond what a coordinator takes in one event."""

Answer = Iterator[pb.SessionResponse]
MakeTokenizer = Callable[[], control_pb2.GetTokenizerResponse]
Habit = Callable[[random.Random, Sequence[int]], Answer]
"""What a worker answers to a request with these slots."""
WelcomeLie = Callable[[random.Random, pb.Welcome], None]
"""Changes a welcome."""


def _frame(slots: Sequence[int], tokens: Sequence[int], **fields: Any) -> pb.SessionResponse:
    """Return a frame with these tokens for each slot."""
    counts = [len(tokens)] * len(slots)
    return pb.SessionResponse(
        frame=pb.StepFrame(slots=slots, **{"counts": counts, "token_ids": [*tokens] * len(slots), **fields})
    )


def _ends(slots: Sequence[int], reason: int = pb.FINISH_REASON_STOP, **fields: Any) -> pb.SessionResponse:
    fields["reason"] = reason
    return pb.SessionResponse(frame=pb.StepFrame(finishes=[pb.Finish(slot=slot, **fields) for slot in slots]))


def _refusal(slots: Sequence[int], code: int) -> pb.SessionResponse:
    return pb.SessionResponse(refusal=pb.Refusal(slots=slots, code=code, message="no\n" * 9))  # type: ignore[arg-type]


def _any_tokens(rng: random.Random, most: int = 250) -> list[int]:
    return [rng.randrange(most) for _ in range(rng.randint(1, 5))]


def _wrong_slots(rng: random.Random, slots: Sequence[int]) -> Answer:
    for wrong in rng.sample([MOST, max(slots) + 1, *range(32)], 5):
        yield _frame([wrong], _any_tokens(rng))
        yield _ends([wrong])


def _doubled(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _frame([*slots, *slots], _any_tokens(rng))
    for reason in rng.choices(pb.FinishReason.values(), k=3):
        yield _ends([*slots, *slots], reason)
    yield _refusal(slots, pb.REFUSAL_CODE_INVALID)


def _tokens_after_the_end(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _ends(slots, rng.choice(pb.FinishReason.values()), error_message="e" * 10_000)
    yield _frame(slots, _any_tokens(rng))


def _tokens_out_of_range(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _frame(slots, rng.choices([MOST, 2**31, 10**6, 49_152, 0], k=4))
    yield _ends(slots, stop_token_id=MOST)


def _wrong_counts(rng: random.Random, slots: Sequence[int]) -> Answer:
    counts = rng.choice([[], [MOST], [0] * len(slots), [3] * (len(slots) + 1), [MOST] * len(slots)])
    yield _frame(slots, _any_tokens(rng), counts=counts)


def _wrong_logprobs(rng: random.Random, slots: Sequence[int]) -> Answer:
    rows = pb.LogprobRows(
        width=rng.choice([0, 1, 7, MOST]),
        token_ids=_any_tokens(rng, MOST),
        logprobs=rng.choices([float("nan"), float("inf"), -0.5, 1e38], k=rng.randint(0, 9)),
        sampled_ranks=_any_tokens(rng, MOST),
    )
    yield _frame(slots, [65], logprobs=[pb.Logprobs(slot=rng.choice([*slots, MOST]), rows=rows) for _ in range(2)])
    prefills = [pb.PrefillInfo(slot=slots[0], cached_tokens=MOST, created_cache_tokens=MOST, prompt_logprobs=rows)] * 2
    yield _frame(slots, [65], prefills=prefills)


def _more_than_asked_for(rng: random.Random, slots: Sequence[int]) -> Answer:
    for _ in range(_TOKENS):
        yield _frame(slots, _any_tokens(rng))


def _fails_late(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _frame(slots, [65])
    yield _ends(slots, pb.FINISH_REASON_ERROR, error_message="no")


def _more_and_gone(rng: random.Random, slots: Sequence[int]) -> Answer:
    for _ in range(7):
        yield _frame(slots, [65])
    yield HANG_UP


def _huge_frame(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _frame(slots[:1], [65] * _HUGE)


def _flood(rng: random.Random, slots: Sequence[int]) -> Answer:
    """Fill a frame up: with tokens, rows, ends, ends that say nothing, or log-probabilities of one token."""
    count = rng.choice(_FLOODS)
    what = rng.randrange(5)
    if what == 0:
        yield _frame(slots[:1], [65] * count)
    elif what == 1:
        yield _frame(list(range(count // 4)), [], counts=[0] * (count // 4))
    elif what == 2:
        yield _ends([slots[0]] * (count // 20))
    elif what == 3:
        yield pb.SessionResponse(frame=pb.StepFrame(finishes=[pb.Finish()] * (count // 4)))
    else:
        rows = pb.LogprobRows(width=count // 5, token_ids=[65] * (count // 5), logprobs=[-0.5] * (count // 5))
        yield _frame(slots[:1], [65], logprobs=[pb.Logprobs(slot=slots[0], rows=rows)])


def _garbage(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield pb.SessionResponse()
    yield pb.SessionResponse(frame=pb.StepFrame())
    load = pb.Load(running=MOST, waiting=MOST, kv_cache_usage=rng.choice([float("nan"), -1.0, 1e38]))
    yield _frame(slots, [65], load=load, weight_version="v" * 10_000)
    yield pb.SessionResponse(heartbeat=pb.Heartbeat(load=load, steps=2**64 - 1, stalled_ms=MOST, engine_cpu_ms=MOST))


def _cache(rng: random.Random, slots: Sequence[int]) -> Answer:
    hashes = [rng.getrandbits(64) for _ in range(rng.choice([20_000, 1_000_000]))]
    yield pb.SessionResponse(cache=pb.CacheChange(cleared=rng.random() < 0.5, stored=hashes, removed=hashes[::2]))


def _refuses(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _refusal(rng.choice([slots, [MOST], [*slots, *slots]]), rng.choice([*pb.RefusalCode.values(), 99]))


def _refuses_nobody(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield _refusal([], pb.REFUSAL_CODE_OVERLOADED)


def _closes(rng: random.Random, slots: Sequence[int]) -> Answer:
    if rng.random() < 0.5:
        yield _frame(slots, [65])
    yield HANG_UP


def _second_welcome(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield pb.SessionResponse(welcome=pb.Welcome())


def _drains(rng: random.Random, slots: Sequence[int]) -> Answer:
    yield pb.SessionResponse(draining=pb.Draining(deadline_ms=rng.choice([0, MOST])))
    yield _ends(slots, pb.FINISH_REASON_ABORT, handed_back=True)


def _stale_state(rng: random.Random, slots: Sequence[int]) -> Answer:
    epochs = [0, 1, 5 << 16, 2**63, 2**64 - 1]
    record = pb.OperationRecord(operation=rng.randbytes(40), signatures=[rng.randbytes(32)])
    for _ in range(3):
        state = pb.ServingState(
            epoch=rng.choice(epochs),
            revision=rng.choice(epochs),
            paused=rng.random() < 0.5,
            weight_version="theirs",
            weights_epoch=rng.choice(epochs),
            weights_path="/hostile",
            records=[record] * rng.randint(0, 2),
        )
        yield pb.SessionResponse(serving=state)


def _many_labels(rng: random.Random, slots: Sequence[int]) -> Answer:
    size = rng.choice([1, 500, 100_000])
    for step in range(_TOKENS):
        yield _frame(slots, [65], weight_version=f"{step}" + "v" * size)


def _silent(rng: random.Random, slots: Sequence[int]) -> Answer:
    return iter(())


HABITS: dict[str, Habit] = {
    "wrong slots": _wrong_slots,
    "doubled ends": _doubled,
    "tokens after the end": _tokens_after_the_end,
    "tokens out of range": _tokens_out_of_range,
    "wrong counts": _wrong_counts,
    "wrong log-probabilities": _wrong_logprobs,
    "more than asked for": _more_than_asked_for,
    "an error after a token": _fails_late,
    "more than asked for, and closing": _more_and_gone,
    "a huge frame": _huge_frame,
    "a flood": _flood,
    "garbage": _garbage,
    "cache": _cache,
    "refusals": _refuses,
    "a refusal of nobody": _refuses_nobody,
    "closing": _closes,
    "a second welcome": _second_welcome,
    "draining": _drains,
    "stale states": _stale_state,
    "many labels": _many_labels,
    "heartbeats only": _silent,
}


def _other_weights(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.weights_digest, welcome.model.dtype = rng.randbytes(16).hex(), "int\n4"


def _other_sizes(rng: random.Random, welcome: pb.Welcome) -> None:
    model = welcome.model
    model.max_model_len, model.max_num_seqs = rng.choice([0, 1, MOST]), rng.choice([0, 1, MOST])
    model.max_token_id = rng.choice([0, MOST])


def _other_names(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.names[:] = rng.choice([[], ["simulated", "n" * 100_000], ["\x00\n"], ["simulated"] * 2])


def _other_defaults(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.default_sampling_params_json = rng.choice(["{", "[]", '{"temperature": "hot"}', "[" * 100_000])


def _other_tokenizer(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.tokenizer_digest = rng.choice(["", "0" * 64, "d" * 100_000])


def _other_protocol(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.protocol.major = rng.choice([0, MOST])


def _other_pace(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.heartbeat_ms, welcome.draining = rng.choice([0, 1, MOST]), rng.random() < 0.5
    welcome.load.kv_cache_usage, welcome.load.running = float("nan"), MOST


def _other_digest(rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.tokenizer_digest = rng.randbytes(32).hex()


def _digest_of(make: MakeTokenizer, rng: random.Random, welcome: pb.Welcome) -> None:
    welcome.model.tokenizer_digest = tokenizer_digest(make().files)


def _no_identity(rng: random.Random, welcome: pb.Welcome) -> None:
    fields = ["tokenizer_digest", "weights_digest", "dtype", "quantization"]
    for field in rng.sample(fields, rng.randint(1, len(fields))):
        welcome.model.ClearField(field)


WELCOMES: dict[str, WelcomeLie] = {
    "other weights": _other_weights,
    "other sizes": _other_sizes,
    "other names": _other_names,
    "other defaults": _other_defaults,
    "another tokenizer": _other_tokenizer,
    "another protocol": _other_protocol,
    "another pace": _other_pace,
    "no identity": _no_identity,
}
TOKENIZERS: dict[str, MakeTokenizer] = {
    "a large tokenizer": large_tokenizer,
    "a tokenizer that multiplies": multiplying_tokenizer,
    "a large template": tokenizer_with_large_template,
    "a slow expression": tokenizer_with_slow_expression,
}
"""What a worker brings that names its digest; that of the large one is never read, so any will do."""
WELCOMES |= {name: partial(_digest_of, make) for name, make in TOKENIZERS.items()}
WELCOMES["a large tokenizer"] = _other_digest
METRICS: dict[str, Callable[[], str]] = {
    "no metrics": str,
    "unparsable metrics": lambda: 'vllm:a{ 1\n# TYPE vllm:b\n\x00{}\nvllm:c{l="\n"} x',
    "unbounded metrics": lambda: "".join(f'vllm:a{{n="{n}"}} {n}\n' for n in range(200_000)),
    "metrics of others": lambda: (
        'tokenwire_up 0\nvllm:num_requests_running{worker="a"} 1\nprocess_cpu_seconds_total 1\n'
    ),
    "conflicting metrics": lambda: (
        "# TYPE vllm:num_requests_running histogram\nvllm:num_requests_running NaN\n"
        "# TYPE vllm:num_requests_running counter\nvllm:num_requests_running -Inf\n"
    ),
    "metrics of no number": lambda: '# TYPE vllm:a gauge\nvllm:a -NaN\nvllm:a{b=""} 1e999\n',
    "long metrics": lambda: f'vllm:{"n" * 100_000}{{l="{"v" * 1_000_000}"}} 1\n',
}


class DrawnWorker(HostileWorker):
    """Lies in its welcome and in its metrics, and has habits in answering requests, all drawn from a seed."""

    def __init__(
        self, info: control_pb2.GetServerInfoResponse, tokenizer: control_pb2.GetTokenizerResponse, seed: int
    ) -> None:
        super().__init__(info, tokenizer)
        self._rng = rng = random.Random(seed)
        self._habits = rng.sample(sorted(HABITS), rng.randint(1, 4))
        # Most have few lies in their welcome, or they would get no requests.
        self._lies = rng.sample(sorted(WELCOMES), rng.choice([0, 0, 0, 1, 1, 2]))
        metrics = rng.choice(sorted(METRICS))
        self.metrics_text = METRICS[metrics]()
        expansion = rng.choice(sorted(EXPANSIONS))
        self._expand = EXPANSIONS[expansion]
        make = next((make for name, make in TOKENIZERS.items() if name in self._lies), None)
        if make is not None:
            self.tokenizer = make()
        self.name = ", ".join([*self._habits, *self._lies, metrics, expansion])
        """What it does."""

    def welcome(self) -> pb.Welcome:
        """Return a welcome with its lies."""
        welcome = super().welcome()
        for name in self._lies:
            WELCOMES[name](self._rng, welcome)
        return welcome

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return what it always says of pictures."""
        return await self._expand(self._rng, request)

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return what one of its habits is."""
        return partial(HABITS[self._rng.choice(self._habits)], self._rng)(list(submit.slots))
