"""The reader of one choice of a reply: judges its ids, text, log-probabilities and end as they come."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.simulation.engines import Placement
from tests.simulation.logprobs import joined, logprobs_problem
from tests.simulation.oracle import IM_END, ChoiceOracle, EndRules
from tests.simulation.single_run import SEEDED, asks_for_ids, needs_single_run, prefers_error

ENGINE_ENDS = {"stop", "length"}


class ChoiceReader:
    """Takes the parts of one choice."""

    def __init__(self, spec: Mapping[str, Any], config: Mapping[str, Any], index: int, prompt: Sequence[int]) -> None:
        self.finish: str | None = None
        self.text = ""
        self.spans: Sequence[Mapping[str, Any]] | None = None
        """The versions of the weights that are said to have generated it."""
        seed = spec["seed"] + index if spec["sampling"] in SEEDED else None
        self.rules = EndRules.of(spec)
        may_fork = spec["sampling"] == "unseeded penalty" and not prefers_error(spec, config)
        self.oracle = ChoiceOracle(prompt, seed, needs_single_run(spec, config), self.rules, may_fork)
        self._spec = spec
        self._prompt = prompt
        self._is_certain = spec["n"] == 1 or seed is not None
        """Whether its placements are not mistaken for those of another choice."""
        self._logprobs: list[Mapping[str, Any]] = []
        """Of a client that gets no ids: which tokens they are of is known at the end."""

    def take(self, choice: Mapping[str, Any], placements: Sequence[Placement]) -> Iterator[str]:
        """Take a part; yield what is wrong with it."""
        if self.finish is not None:
            yield "goes on after its end"
        finish, text = choice.get("finish_reason"), self._text_of(choice)
        self.text += text
        if asks_for_ids(self._spec):
            token_ids = choice.get("token_ids") or []
            yield self.oracle.take(token_ids, placements)
            yield self._logprobs_problem(choice.get("logprobs"), len(token_ids), placements)
            yield self._text_problem(self.oracle, choice)
        else:
            yield self._take_text(text, choice, placements)
        self.finish = finish
        if finish is not None:
            self.spans = choice.get("weight_versions")
            if self.was_resumed and self._spec["stream"] and not choice.get("resumed"):
                yield "was resumed, and does not say so"

    @property
    def was_resumed(self) -> bool:
        """Whether it has certainly gone on at another placement."""
        return self.oracle.continued and self._is_certain

    def _text_of(self, choice: Mapping[str, Any]) -> str:
        if self._spec["route"] == "chat":
            return str((choice.get("delta") or choice.get("message") or {}).get("content") or "")
        return str(choice.get("text") or "")

    def _take_text(self, text: str, choice: Mapping[str, Any], placements: Sequence[Placement]) -> str:
        """Take text without its ids: each character is one, and those that a stop string hides are tried."""
        if choice.get("logprobs") is not None:
            self._logprobs.append(choice["logprobs"])
        if choice.get("token_ids") is not None:
            return "has ids that nobody asked for"
        token_ids, problems = list(text.encode()), []
        for hidden in self.rules.hidden_ends() if choice.get("finish_reason") == "stop" else [[]]:
            oracle = self.oracle.fork()
            problem = oracle.take([*token_ids, *hidden], placements) or self._text_problem(oracle, choice)
            if not problem:
                self.oracle = oracle
                if choice.get("finish_reason") is not None and self._logprobs:
                    return self._logprobs_problem(joined(self._logprobs), len(oracle.token_ids), placements)
                return ""
            problems.append(problem)
        return f"no ids explain its text: {'; '.join(problems)}"

    def _text_problem(self, oracle: ChoiceOracle, choice: Mapping[str, Any]) -> str:
        """Return what is wrong with its text so far, and with its end; empty if nothing."""
        expected, stopped_by = oracle.visible_text()
        finish = choice.get("finish_reason")
        has_text = self._spec.get("has_text", True)
        if has_text and not expected.startswith(self.text):
            return f"wrong text: {self.text!r} is not in {expected!r}"
        if finish is None:
            return ""
        if has_text and self.text != expected:
            return f"ended ({finish}) with {self.text!r} instead of {expected!r}"
        return self._end_problem(oracle, finish, choice.get("stop_reason"), stopped_by)

    def _end_problem(
        self, oracle: ChoiceOracle, finish: str, reason: object, stopped_by: tuple[str, int] | None
    ) -> str:
        spec, count = self._spec, len(oracle.token_ids)
        ended_by_id = oracle.finish is not None and oracle.finish.reason == oracle.STOP
        last = oracle.token_ids[-1] if oracle.token_ids else None
        if finish == "stop" and count <= self.rules.min_tokens:
            return f"ended as stop after {count} tokens, and has {self.rules.min_tokens} at least"
        if spec.get("ignore_eos") and IM_END in oracle.token_ids:
            return "has an end of the model that it ignores"
        if not self.rules.stop_ids.isdisjoint(oracle.token_ids[:-1]):
            return "goes on after an id that ends it"
        if stopped_by is not None:
            stop, stopped_at = stopped_by
            if (finish, stopped_at) != ("stop", count):
                return f"ended as {finish} after {count} tokens, with a stop string that is complete after {stopped_at}"
            return "" if reason == stop else f"stopped by {reason!r} instead of {stop!r}"
        if finish in ENGINE_ENDS and {"stop": ended_by_id, "length": count == spec["max_tokens"]}[finish] is False:
            return f"ended as {finish} after {count} tokens"
        expected = last if finish == "stop" and last in self.rules.stop_ids else None
        return "" if reason == expected else f"stopped by {reason!r} instead of {expected!r}"

    def _logprobs_problem(self, logprobs: Mapping[str, Any] | None, new: int, placements: Sequence[Placement]) -> str:
        if self._spec["logprobs"] is None or not new or not placements:
            return ""
        ids = [*self._prompt, *self.oracle.token_ids]
        return logprobs_problem(logprobs, ids, new, placements[0], self._spec)
