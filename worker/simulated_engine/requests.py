"""Turns a submit into the sequences that a simulated engine runs, or refuses it as vLLM would."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.protocol.prefix_hash import scope_of
from tokenwire.protocol.seeds import is_greedy, sequence_seed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.model import SimulatedModel
from tokenwire.worker.simulated_engine.prefix_hashes import PrefixHashes
from tokenwire.worker.simulated_engine.settings import SimulationSettings
from tokenwire.worker.simulated_engine.simulated_sequence import SimulatedSequence
from tokenwire.worker.simulated_engine.tokens import (
    LogprobShape,
    Script,
    TokenDistribution,
    TokenRules,
    TokenSource,
    eos_limit,
    hash_context,
    logprob_rows,
    stable_hash,
)

_MAX_LOGPROBS = 20
_MAX_LOGPROB_TOKEN_IDS = 128
_ID_FIELDS = ("stop_token_ids", "allowed_token_ids", "logprob_token_ids", "logit_bias", "trace_decode_token_ids")
_REFUSED = ("prompt_logprob_start", "routed_experts_prompt_start")


@dataclass(frozen=True, slots=True)
class RequestPlanner:
    """Checks submits against one model and plans their sequences.

    Honoured exactly: max_tokens, min_tokens, stop_token_ids, ignore_eos, allowed_token_ids, seed,
    trace_decode_token_ids, and the shape of log-probabilities. A logit_bias of -100 bans an id; one of 100
    allows only such ids. Parameters that only shape the distribution (temperature above 0, top_p, penalties,
    bad_words …) have no effect. Scripted ids are generated as given, but end nothing before min_tokens.
    """

    settings: SimulationSettings
    model: SimulatedModel

    def plan(
        self,
        submit: pb.Submit,
        sequences: list[EngineSequence],
        fails_after: int | None,
        weights: str = "",
        scripts: Sequence[Script] = (),
    ) -> list[SimulatedSequence]:
        """Return a simulated sequence for each of the sequences, under these weights, with its script if there are any.

        Raises InvalidRequest.
        """
        params = submit.sampling_params
        prompt = list(prompt_ids(submit))
        self._check_prompt(prompt)
        self._check_params(params, len(sequences))
        rules = self._rules(params, prompt, fails_after)
        context, hashes = hash_context(prompt)
        scope = stable_hash(submit.cache_salt, submit.lora.id) if submit.cache_salt or submit.lora.id else 0
        prompt_logprobs = self._prompt_logprobs(params, prompt)
        prefix_hashes = self._prefix_hashes(submit, prompt)
        simulated_sequences = []
        for place, sequence in enumerate(sequences):
            if scripts:
                rules = replace(rules, script=scripts[place])
            source = TokenSource(rules, context, self.key(params, weights, submit.lora.id, sequence.index))
            simulated = SimulatedSequence(sequence, source, len(prompt), [block ^ scope for block in hashes], scope)
            simulated.priority = submit.priority
            simulated.reads_cache = not (params.skip_reading_prefix_cache or params.HasField("prompt_logprobs"))
            simulated.is_greedy = is_greedy(params)
            if sequence.sampled_only:
                simulated.scores = []
            else:
                simulated.logprobs = _logprob_shape(params)
            simulated.prompt_logprobs = prompt_logprobs
            simulated.prefix_hashes = prefix_hashes and prefix_hashes.copy()
            simulated_sequences.append(simulated)
        return simulated_sequences

    def _prefix_hashes(self, submit: pb.Submit, prompt: list[int]) -> PrefixHashes | None:
        if not self.settings.kv_events:
            return None
        hashes = PrefixHashes(scope_of(submit.cache_salt, submit.lora.id))
        hashes.add(prompt)
        return hashes

    def key(self, params: pb.SamplingParams, weights: str, lora_id: int, index: int) -> int:
        """Return what a sequence's tokens depend on besides the ids before them."""
        if self.settings.generators and not is_greedy(params) and not params.HasField("seed"):
            seed = random.getrandbits(60)
        else:
            seed = 0 if is_greedy(params) else sequence_seed(params.seed, index)
        return stable_hash(weights or self.settings.seed, seed, lora_id)

    def _rules(self, params: pb.SamplingParams, prompt: list[int], fails_after: int | None) -> TokenRules:
        remaining = self.model.max_model_len - len(prompt)
        limit = min(params.max_tokens, remaining) if params.HasField("max_tokens") else remaining
        if not params.HasField("max_tokens"):
            _check_min_tokens(params.min_tokens, limit)
        fails = fails_after is not None and fails_after <= limit
        words = self._words(params)
        limit = fails_after if fails and fails_after else limit
        eos, ends = self.model.eos_token_id, frozenset(params.stop_token_ids) | self.model.stop_token_ids
        eos_ends = eos is not None and not params.ignore_eos
        eos_rate = self.settings.eos_rate if eos_ends and not (params.allowed_token_ids or params.logit_bias) else 0.0
        stops = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            stops = ends if eos is None else ends | {eos}
        early = self._without(words, ends if eos is None else ends | {eos}) if params.min_tokens else words
        if not words or not early:
            _refuse("no token left to sample: every one is banned or not allowed before min_tokens", None)
        return TokenRules(
            choice=TokenDistribution(words, eos or 0, eos_limit(eos_rate)),
            early=TokenDistribution(early),
            stops=stops,
            eos_token_id=eos if eos_ends else None,
            min_tokens=min(params.min_tokens, limit),
            max_tokens=limit,
            generator=self.settings.generators and _has_state(params),
            script=self.script(params, prompt),
            fails=fails,
        )

    def script(self, params: pb.SamplingParams, prompt: list[int]) -> Script | None:
        """Return the forced ids of a request, or else the engine's script, if there is one."""
        if params.trace_decode_token_ids:
            return Script(tuple(params.trace_decode_token_ids))
        return _script_after_prompt(self.settings.script, prompt)

    def _words(self, params: pb.SamplingParams) -> tuple[int, ...]:
        words = tuple(dict.fromkeys(params.allowed_token_ids)) or self.model.words
        if not params.logit_bias:
            return words
        forced = {token for token, bias in params.logit_bias.items() if bias >= 100}
        if forced:
            allowed = set(params.allowed_token_ids)
            return tuple(sorted(forced & allowed if allowed else forced))
        banned = frozenset(token for token, bias in params.logit_bias.items() if bias <= -100)
        return self._without(words, banned)

    def _without(self, words: tuple[int, ...], banned: frozenset[int]) -> tuple[int, ...]:
        # A vocabulary is large, and usually contains none of the banned ids.
        if words is self.model.words and banned.isdisjoint(self.model.word_set):
            return words
        return tuple(word for word in words if word not in banned)

    def _prompt_logprobs(self, params: pb.SamplingParams, prompt: list[int]) -> pb.LogprobRows | None:
        if not params.HasField("prompt_logprobs"):
            return None
        context, sampled = 0, []
        for before, token in pairwise(prompt):
            context = stable_hash(context, before)
            sampled.append((context, token))
        return logprob_rows(LogprobShape(params.prompt_logprobs), self.model.words, sampled)

    def _check_prompt(self, prompt: list[int]) -> None:
        limit = self.model.max_model_len
        advice = "Make sure that `max_model_len` is no smaller than the number of text tokens"
        start = f"The decoder prompt (length {len(prompt)})"
        param = "prompt_token_ids"
        if not prompt:
            _refuse("The decoder prompt cannot be empty", param)
        if len(prompt) > limit:
            _refuse(f"{start} is longer than the maximum model length of {limit}. {advice}.", param)
        if len(prompt) == limit:
            too_long = "plus the number of requested output tokens (at least 1) is longer than the maximum model length"
            _refuse(f"{start} {too_long} of {limit}. {advice} (prompt + requested output tokens).", param)
        self._check_ids(prompt, param)

    def _check_params(self, params: pb.SamplingParams, n: int) -> None:
        for name in _REFUSED:
            if params.HasField(name):
                _refuse(f"a simulated engine cannot honour {name}", name)
        if params.prompt_logprob_token_ids:
            _refuse("a simulated engine cannot honour prompt_logprob_token_ids", "prompt_logprob_token_ids")
        if n > 1 and is_greedy(params):
            _refuse(f"n must be 1 when using greedy sampling, got {n}.", "n")
        if params.HasField("max_tokens") and params.max_tokens < 1:
            _refuse(f"max_tokens must be at least 1, got {params.max_tokens}.", "max_tokens")
        if params.HasField("max_tokens"):
            _check_min_tokens(params.min_tokens, params.max_tokens)
        for name in ("logprobs", "prompt_logprobs"):
            _check_count(getattr(params, name), name)
        exact, most = len(params.logprob_token_ids), _MAX_LOGPROB_TOKEN_IDS
        if exact > most:
            message = f"Requested logprob_token_ids of length {exact}, which is greater than max allowed: {most}"
            _refuse(message, "logprob_token_ids")
        for name in _ID_FIELDS:
            self._check_ids(getattr(params, name), name)

    def _check_ids(self, token_ids: Iterable[int], param: str) -> None:
        largest = max(token_ids, default=0)
        if largest > self.model.max_token_id:
            _refuse(f"Token id {largest} is out of vocabulary", param)


def _script_after_prompt(script: tuple[int, ...] | None, prompt: list[int]) -> Script | None:
    """Return a script rotated to continue after the part of it with which the prompt ends."""
    if script is None:
        return None
    for done in range(min(len(script) - 1, len(prompt)), 0, -1):
        if prompt[-1] == script[done - 1] and tuple(prompt[-done:]) == script[:done]:
            return Script(script[done:] + script[:done])
    return Script(script)


def _has_state(params: pb.SamplingParams) -> bool:
    """Return whether a real engine keeps state for the request that is not in its ids."""
    output_alone = params.presence_penalty or params.frequency_penalty or params.bad_words
    return bool(output_alone) or params.HasField("repetition_detection") or not is_greedy(params)


def _logprob_shape(params: pb.SamplingParams) -> LogprobShape | None:
    if params.logprob_token_ids or params.HasField("logprobs"):
        return LogprobShape(params.logprobs, tuple(params.logprob_token_ids), is_greedy(params))
    return None


def _check_min_tokens(least: int, most: int) -> None:
    if least > most:
        _refuse(f"min_tokens must be less than or equal to max_tokens={most}, got {least}.", "min_tokens")


def _check_count(count: int, name: str) -> None:
    if count < -1:
        _refuse(f"{name} must be non-negative or -1, got {count}.", name)
    if count == -1 or count > _MAX_LOGPROBS:
        what = "the whole vocabulary" if count == -1 else str(count)
        kind = name.replace("_", " ") if name == "prompt_logprobs" else "sample logprobs"
        _refuse(f"Requested {kind} of {what}, which is greater than max allowed: {_MAX_LOGPROBS}", name)


def _refuse(message: str, param: str | None) -> None:
    raise InvalidRequest(message, param=param)
