"""Mutants that no test should kill, each with the reason: they change nothing that anybody is promised."""

INTERFACE = "a default of an interface: only those of its implementations apply"
FALSY = "another false value"
FASTER = "costs or saves work, with the same outcome"
SAME = "leads to the same result on every input"
NEGATIVE = "any negative number says that nothing matched"
ORDER = "the map of a message is in one order here; another version of protobuf may need it"
SPELLING = "the same keys have equal digests, only other ones"
CHECK = "checks what always holds"
SHIFT = "all start tags are later by the same time"
ALIKE = "all that are compared have it, or none"
ANY = "any constant does"
BOUND = "one more or less of a bound that is a guess"
LOGGED = "only logs show it, before a coordinator has said who it is"

EQUIVALENT = {
    "coordinator/fleet/admission/fair_queue.py: "
    "lane.move_to_end(entry, last=False)  ->  lane.move_to_end(entry, last=None)": FALSY,
    (
        "coordinator/fleet/admission/fair_queue.py: "
        "tag = 0.0 if entry.share is None else entry.share.tag"
        "  ->  tag = 1.0 if entry.share is None else entry.share.tag"
    ): ALIKE,
    "coordinator/fleet/failover/poison_cache.py: params.seed = 0  ->  params.seed = 1": ANY,
    "coordinator/fleet/failover/sequence.py: self.placed_at = 0.0  ->  self.placed_at = 1.0": SAME,
    (
        "coordinator/fleet/frames.py: "
        "scored[each.slot] += len(rows.token_ids) // rows.width"
        "  ->  scored[each.slot] += len(rows.token_ids) / rows.width"
    ): SAME,
    "worker/engine/frame_buffer.py: if self._scored > _MOST_SCORED:  ->  if self._scored >= _MOST_SCORED:": BOUND,
    "coordinator/fleet/transport/paced.py: self._free_at = 0.0  ->  self._free_at = 1.0": SAME,
    "worker/engine/frame_buffer.py: self._scored = 0  ->  self._scored = 1": BOUND,
    "worker/services/session.py: self.coordinator_id = '?'  ->  self.coordinator_id = None": LOGGED,
    "coordinator/fleet/admission/fair_bound.py: part.refusable[entry] = None  ->  part.refusable[entry] = ''": FALSY,
    "coordinator/fleet/admission/shares.py: self._virtual_time = 0.0  ->  self._virtual_time = 1.0": SHIFT,
    "coordinator/fleet/admission/shares.py: shares._virtual_time = 0.0  ->  shares._virtual_time = 1.0": SHIFT,
    (
        "coordinator/fleet/admission/queue.py: "
        "def (self, model: str, adapter_id: int=0, revision: ModelRevision | None=None) -> str:"
        "  ->  def (self, model: str, adapter_id: int=1, revision: ModelRevision | None=None) -> str:"
    ): INTERFACE,
    (
        "coordinator/fleet/admission/queue.py: "
        "if self._requests and (not self._checks_soon):"
        "  ->  if self._requests or not self._checks_soon:"
    ): FASTER,
    (
        "coordinator/fleet/failover/failover.py: "
        "def (self, model: str, adapter_id: int=0, revision: ModelRevision | None=None, seeded_noise: str='') "
        "-> pb.EngineCapabilities:"
        "  ->  def (self, model: str, adapter_id: int=1, revision: ModelRevision | None=None, seeded_noise: str='') "
        "-> pb.EngineCapabilities:"
    ): INTERFACE,
    (
        "coordinator/fleet/failover/poison_cache.py: "
        "for part in (model.encode(), submission.lora.name.encode(), how.SerializeToString(deterministic=True)):"
        "  ->  for part in (model.encode(), submission.lora.name.encode(), "
        "how.SerializeToString(deterministic=None)):"
    ): ORDER,
    (
        "coordinator/fleet/failover/poison_cache.py: "
        "self.poison.popitem(last=False)"
        "  ->  self.poison.popitem(last=None)"
    ): FALSY,
    (
        "coordinator/fleet/failover/sequence.py: "
        "self._lose(failed, failed, failed, False, finish)"
        "  ->  self._lose(failed, failed, failed, None, finish)"
    ): FALSY,
    "coordinator/fleet/failover/sequence.py: self.ended = False  ->  self.ended = None": FALSY,
    (
        "coordinator/fleet/frames.py: "
        "for slot, count in zip(frame.slots, counts, strict=True):"
        "  ->  for slot, count in zip(frame.slots, counts, strict=None):"
    ): CHECK,
    (
        "coordinator/fleet/frames.py: "
        "stopped = _step_mixed(frame, slots) if frame.finishes or frame.counts else _step_plain(frame, slots)"
        "  ->  "
        "stopped = _step_mixed(frame, slots) if (frame.finishes or frame.counts) or True else _step_plain(frame, slots)"
    ): FASTER,
    (
        "coordinator/history/digests.py: "
        "more = '' if message.keys() == _PLAIN else _more(message, schemas)"
        "  ->  more = '' if message.keys() == _PLAIN and False else _more(message, schemas)"
    ): FASTER,
    (
        "coordinator/history/digests.py: "
        "return json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False, "
        "default=_bytes_as_hex)"
        "  ->  return json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=True, "
        "default=_bytes_as_hex)"
    ): SPELLING,
    (
        "coordinator/history/store.py: "
        "for key, entry in zip(keys, found, strict=True):"
        "  ->  for key, entry in zip(keys, found):"
    ): CHECK,
    (
        "coordinator/history/tail.py: "
        "arguments = {**parse_arguments(function.get('arguments'), 'tool_calls'), PLACEHOLDER: ''}"
        "  ->  arguments = {**parse_arguments(function.get(None), 'tool_calls'), PLACEHOLDER: ''}"
    ): SAME,
    (
        "coordinator/history/tail.py: pairs = zip(one, other, strict=False)  ->  pairs = zip(one, other, strict=None)"
    ): FALSY,
    (
        "coordinator/text/detokenizer.py: "
        "return TextStart(tail[-size:], tokenizer.decode(tail[-size:], skip_special_tokens))"
        "  ->  return TextStart(tail[-size:], tokenizer.decode(tail[-size:]))"
    ): SAME,
    "coordinator/text/stops.py: return (0, -1, -1)  ->  return (0, -2, -1)": NEGATIVE,
    "coordinator/text/stops.py: self._matched: list[int] = [-1]  ->  self._matched: list[int] = [-2]": NEGATIVE,
}
"""Why, by what the mutant changes."""
