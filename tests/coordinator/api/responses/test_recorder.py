"""Records of responses."""

from tokenwire.coordinator.api.responses.continuation import Continued
from tokenwire.coordinator.api.responses.recorder import Recorder
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.response_store.store import MemoryResponseStore


async def test_a_record_has_the_response_and_what_it_continues() -> None:
    """With the size of the whole conversation, which bounds what is continued."""
    store = MemoryResponseStore(2**20, 60.0)
    continued = Continued("conversation", ("resp_0",), 1000)
    caller = Caller("acme", share="acme")
    recorder = Recorder(store, caller, "resp_1", "conversation", True, continued, b"[1]")

    recorder.put({"status": "in_progress", "output": []})
    recorder.put({"status": "completed", "output": []}, b"event: x\n\n", 3)

    (stored,) = await store.find([recorder.key])
    assert stored is not None
    assert (stored.status, stored.chain, stored.input) == ("completed", ("resp_0",), b"[1]")
    assert stored.context_bytes == 1000 + len(stored.body) + len(stored.input)
    assert (stored.events, stored.first_event, stored.background) == (b"event: x\n\n", 3, True)
