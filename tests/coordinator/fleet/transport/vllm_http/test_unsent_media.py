"""Media on their way to plain vLLM servers."""

from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia

ONE, TWO, THREE = b"1" * 32, b"2" * 32, b"3" * 32


def test_the_oldest_items_make_room() -> None:
    """One that is put again is new, and one that is too large alone is kept for its request."""
    store = UnsentMedia(None, most_bytes=5)
    store.put(ONE, b"aa")
    store.put(TWO, b"bb")
    store.put(ONE, b"aa")
    store.put(THREE, b"cc")
    assert (store.get(ONE), store.get(TWO), store.get(THREE)) == (b"aa", None, b"cc")

    store.put(TWO, b"b" * 9)
    assert (store.get(ONE), store.get(TWO), store.get(THREE)) == (None, b"b" * 9, None)
    store.put(ONE, b"aa")
    assert (store.get(ONE), store.get(TWO)) == (b"aa", None)


def test_names_are_a_secret_of_those_with_the_key() -> None:
    """Coordinators with one key have the same ones; without a key each process has its own."""
    assert UnsentMedia("key").name(ONE) == UnsentMedia("key").name(ONE)
    names = {UnsentMedia("key").name(ONE), UnsentMedia("other").name(ONE), UnsentMedia(None).name(ONE)}
    assert len(names | {UnsentMedia(None).name(ONE), UnsentMedia("key").name(TWO)}) == 5
    assert ONE.hex() not in names
