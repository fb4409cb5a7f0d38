"""One client's request: sends it, reads its response as fast as the script says, and checks all that it reads.

One file beyond the usual length, since what a client reads is judged where it is read.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tests.simulation.choice_reader import ENGINE_ENDS, ChoiceReader
from tests.simulation.engines import Placement, Placements
from tests.simulation.http import HttpExchange
from tests.simulation.logprobs import prompt_logprobs_problem
from tests.simulation.oracle import ChoiceOracle
from tests.simulation.prompts import PromptOracle
from tests.simulation.requests import ID_PREFIXES
from tests.simulation.retry_after import retry_problem
from tests.simulation.single_run import asks_for_ids, prefers_error
from tests.simulation.tenants import Tenants
from tests.simulation.witness import Witness
from tests.simulation.world import Node, World

Violate = Callable[[str], None]

_BASE_MODEL = "simulated"
_MAX_EARLIER = 300
"""Tokens of a chat that is continued: the model's context has 512."""


class SimulatedClient:
    """The reader of one response."""

    def __init__(
        self,
        world: World,
        spec: Mapping[str, Any],
        placements: Placements,
        witness: Witness,
        violate: Violate,
        tenants: Tenants,
        may_abort: "Callable[[SimulatedClient], bool]" = lambda client: False,
        earlier: "SimulatedClient | None" = None,
        must_reuse: Callable[[], bool] = lambda: False,
        error_problem: "Callable[[SimulatedClient], str]" = lambda client: "",
        config: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """`may_abort` returns whether somebody has aborted it. `earlier`: the chat that this one continues.

        `error_problem` returns what is wrong with the error that it got; empty if nothing.
        `must_reuse` returns whether it has to continue from the exact ids of that chat.
        """
        self._may_abort = may_abort
        self._error_problem = error_problem
        self.earlier = earlier
        self.begun_at = world.time()
        self.spec = spec
        self.name: str = spec["id"]
        self.ending = ""
        """How it ended; empty: it has not."""
        self.request_id = ID_PREFIXES[spec["route"]] + self.name
        self.error: Mapping[str, Any] = {}
        """The error that it read."""
        self._prompts = PromptOracle(spec, earlier, must_reuse, tenants)
        self._config = config
        self.readers = self._new_readers()
        self._adapter_before: tuple[int, bool | None] = 0, None
        """What was known of its adapter when it was sent."""
        self.server_node: Node | None = None
        """The coordinator process that serves it."""
        self.coordinator = f"c{spec['coordinator']}"
        """The name of its host."""
        self.prompt_scores = 0
        """How many log-probabilities of its prompt it has read."""
        self._usage: Mapping[str, Any] | None = None
        self._world = world
        self._placements = placements
        self._witness = witness
        self._violate = violate
        self.refusal = tenants.refusal(spec, spec["model"] or _BASE_MODEL)
        """The status with which it is to be rejected, whatever the state of the fleet; None: it is not."""
        self.several_versions = 0
        """Choices whose tokens are of more than one version of the weights."""
        self._status, self._headers = 0, dict[bytes, bytes]()
        self._data = b""
        self._dones = 0
        """How often its stream has said that it is complete."""

    @property
    def messages(self) -> list[tuple[str, str]]:
        """The conversation that a further turn continues, once this one has ended."""
        return [*(() if self.earlier is None else self.earlier.messages), *self.turn]

    @property
    def turn(self) -> list[tuple[str, str]]:
        """Its own messages, once it has ended."""
        return [("user", self.spec["prompt"]), ("assistant", self.readers[0].text)]

    @property
    def choices(self) -> list[ChoiceOracle]:
        """The oracles of its choices."""
        return [reader.oracle for reader in self.readers]

    @property
    def placed(self) -> Sequence[Placement]:
        """Its placements so far."""
        return self._placements.get(self.request_id, [])

    @property
    def is_stored(self) -> bool:
        """Whether its reply becomes a part of the history."""
        return asks_for_ids(self.spec)

    @property
    def prefers_error(self) -> bool:
        """Whether it prefers an error to a reply that no single run has generated."""
        return prefers_error(self.spec, self._config)

    @property
    def prompt(self) -> list[int]:
        """Its prompt: the likeliest until it has read which one it is."""
        return self._prompts.prompt

    @property
    def reused_ids(self) -> bool:
        """Whether its prompt starts with the ids of the earlier turn."""
        return self._prompts.reused_last

    @property
    def reused_other_ids(self) -> bool:
        """Whether its prompt has ids of the earlier turn that its text alone would not give."""
        return self._prompts.reused_other

    @property
    def is_chat(self) -> bool:
        """Whether it is a chat with one choice."""
        return bool(self.spec["route"] == "chat" and self.spec["n"] == 1)

    @property
    def moved_coordinator(self) -> bool:
        """Whether another coordinator served the turn before."""
        return self.earlier is not None and self.earlier.coordinator != self.coordinator

    @property
    def may_be_continued(self) -> bool:
        """Whether it is a chat with one complete reply, and room for a further turn."""
        return self.ending in ENGINE_ENDS and len(self.prompt) + len(self.choices[0].token_ids) < _MAX_EARLIER

    @property
    def is_slow(self) -> bool:
        """Whether it reads more slowly than it could."""
        return bool(self.spec["read_delay_s"])

    def has_ended(self, choice: int) -> bool:
        """Return whether it wants nothing more of a choice."""
        return bool(self.ending) or self.readers[choice].finish is not None

    @property
    def tokens(self) -> int:
        """The number of ids that it has read."""
        return sum(len(each.token_ids) for each in self.choices)

    async def run(self, exchange: HttpExchange | None) -> None:
        """Read the response to its end; None: there was nobody to connect to."""
        if exchange is None:
            self._end("connection refused")
            return
        self.server_node = exchange.server
        self._adapter_before = self._adapter_state()
        leaving = None
        if self.spec["leave_s"] is not None:
            leaving = asyncio.get_running_loop().call_later(self.spec["leave_s"], exchange.leave)
        while (message := await exchange.read()) is not None:
            if message["type"] == "http.response.start":
                self._status, self._headers = message["status"], dict(message["headers"])
            else:
                self._on_body(message["body"])
            if self.spec["read_delay_s"]:
                await asyncio.sleep(self.spec["read_delay_s"])
        if leaving is not None:
            leaving.cancel()
        if exchange.lost:
            self._on_lost(exchange, leaving is not None and leaving.when() <= self._world.time())
        else:
            self._on_complete()

    def _adapter_state(self) -> tuple[int, bool | None]:
        name = self.spec["model"]
        if name is None or self.server_node is None:
            return 0, None
        return self._witness.adapters.state(name, self.server_node)

    def has_adapter(self) -> bool | None:
        """Return whether its adapter was certainly loaded all the time since it was sent; None: that is not known."""
        changes, loaded = self._adapter_before
        return loaded if self._adapter_state()[0] == changes else None

    def _end(self, ending: str) -> None:
        self.ending = ending
        self._world.note("client", self.name, ending, *(len(each.token_ids) for each in self.choices))

    def _check(self, holds: object, problem: str) -> None:
        if not holds:
            self._violate(f"{self.name}: {problem}")

    # What is read.

    def _on_body(self, data: bytes) -> None:
        self._data += data
        if self._status == 200 and self.spec["stream"]:
            *events, self._data = self._data.split(b"\n\n")
            for event in events:
                self._check(event.startswith(b"data: "), f"not an event: {event!r}")
                self._check(not self._dones, f"an event after the end: {event!r}")
                if event == b"data: [DONE]":
                    self._dones += 1
                else:
                    self._on_chunk(json.loads(event[6:]))

    def _on_lost(self, exchange: HttpExchange, left: bool) -> None:
        self._end("left" if left else "connection lost")
        was_cancelled = self.server_node is not None and self.server_node.out_of_time
        self._check(left or not exchange.closed_early or was_cancelled, "a response ended early, without an error")

    def _check_mark(self, indices: Sequence[int], says_resumed: bool) -> None:
        """Check what a complete reply says, or in a stream a choice that ends."""
        choices = [(self.request_id, index) for index in indices]
        self._check(not (wrong := self._witness.journeys.mark_problem(choices, says_resumed)), wrong)

    def _on_error(self) -> None:
        self._check(not (wrong := self._error_problem(self)), wrong)

    def _on_complete(self) -> None:
        if self._status != 200:
            body = json.loads(self._data)
            self.error = body["error"]
            self._end(f"error {self._status}")
            self._check(not (wrong := retry_problem(self._status, self._headers, self.error["message"])), wrong)
            self._on_error()
            return
        if not self.spec["stream"]:
            self._on_chunk(json.loads(self._data))
            self._check_mark(range(self.spec["n"]), self._headers.get(b"x-tokenwire-resumed") == b"true")
        self._check(self._dones or not self.spec["stream"], "a stream ended without [DONE]")
        if self.error:
            self._end(f"error event {self.error.get('code')}")
            self._on_error()
            return
        finishes = [reader.finish for reader in self.readers]
        self._end(",".join(map(str, finishes)))
        self._check(None not in finishes, "a choice ended without a reason")
        self._check(
            "abort" not in finishes or self._may_abort(self) or self._may_be_too_old(),
            "aborted, though nothing aborted it",
        )
        self._check_usage()

    def _may_be_too_old(self) -> bool:
        """Return whether newer weights may have ended its choices that were aborted."""
        most = self.spec.get("max_weight_lag")
        aborted = (reader for reader in self.readers if reader.finish == "abort")
        return most is not None and all(self._witness.weights.may_be_too_old(each.spans, most) for each in aborted)

    def _on_chunk(self, chunk: Mapping[str, Any]) -> None:
        if "error" in chunk:
            self.error = chunk["error"]
            return
        self._check(self.has_adapter() is not False, "it was served by an adapter that no worker has any more")
        if "model" in chunk or self.spec["route"] != "generate":
            self._check(chunk["model"] == (self.spec["model"] or _BASE_MODEL), f"it was served by {chunk['model']}")
        self._check(self.refusal is None, f"it was served, instead of a {self.refusal}")
        own_id = chunk["request_id" if self.spec["route"] == "generate" else "id"]
        self._check(own_id == self.request_id, f"another request's chunk: {own_id}")
        for ids in [chunk.get("prompt_token_ids"), *(each.get("prompt_token_ids") for each in chunk["choices"])]:
            if ids is not None:
                self._take_prompt(ids)
        if (history := chunk.get("token_history")) is not None:
            self._check(not (wrong := self._prompts.take_history(history)), wrong)
        for choice in chunk["choices"]:
            self._on_choice(choice)
            self._check_prompt_scores(choice.get("prompt_logprobs") or chunk.get("prompt_logprobs"))
        self._usage = chunk.get("usage") or self._usage

    def _take_prompt(self, ids: list[int]) -> None:
        before = self.prompt
        self._check(not (wrong := self._prompts.take(ids)), wrong)
        if ids != before:
            self.readers = self._new_readers()

    def _new_readers(self) -> list[ChoiceReader]:
        return [ChoiceReader(self.spec, self._config, index, self.prompt) for index in range(self.spec["n"])]

    def _on_choice(self, choice: Mapping[str, Any]) -> None:
        index = choice["index"]
        reader, placements = self.readers[index], self._placements.get(self.request_id, [])
        self._check_adapter(placements)
        for wrong in reader.take(choice, placements):
            self._check(not wrong, f"choice {index} {wrong}")
        crossed, reader.oracle.crossed = reader.oracle.crossed, ""
        self._check(
            not (crossed and self._witness.announces_weights), f"choice {index} went on with other weights, {crossed}"
        )
        if reader.finish is not None and self.spec["stream"]:
            self._check_mark([index], bool(choice.get("resumed")))
        if reader.finish is not None and asks_for_ids(self.spec):
            self._check(not (wrong := self._witness.weights.problem(reader.oracle, reader.spans)), wrong)
            if (most := self.spec.get("max_weight_lag")) is not None:
                self._check(not (wrong := self._witness.weights.lag_problem(reader.spans, most)), wrong)
            self.several_versions += len(reader.spans or ()) > 1

    def _check_prompt_scores(self, scores: Sequence[Any] | None) -> None:
        most, placements = self.spec.get("prompt_logprobs"), self._placements.get(self.request_id)
        if most is None:
            self._check(scores is None, "log-probabilities of its prompt that nobody asked for")
        elif placements and (scores is not None or self.choices[0].token_ids):
            wrong = prompt_logprobs_problem(scores, self.prompt, placements[0].words, most)
            self._check(not wrong, wrong)
            self.prompt_scores += len(scores or ())

    def _check_adapter(self, placements: Sequence[Placement]) -> None:
        """Check that all engines were given the adapter that the request names, the same one, and a choice's seed."""
        ids = {placement.lora_id for placement in placements}
        names = {self._witness.adapters.name_of(number) for number in ids}
        self._check(len(ids) <= 1 and names <= {self.spec["model"] or ""}, f"generated with the adapters {names}")
        seeds = {placement.seed for placement in placements}
        self._check(len(seeds) <= self.spec["n"], f"has {len(seeds)} seeds for {self.spec['n']} choices")

    def _check_usage(self) -> None:
        usage = self._usage or {}
        completed = sum(len(each.token_ids) for each in self.choices)
        self._check(usage.get("prompt_tokens") == len(self.prompt), f"usage {usage} for {len(self.prompt)} prompt ids")
        self._check(usage.get("completion_tokens") == completed, f"usage {usage} for {completed} tokens")
