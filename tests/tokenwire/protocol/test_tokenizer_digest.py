"""The digest of tokenizer files, by which peers check that they have the same ones."""

from tokenwire.protocol.tokenizer_digest import tokenizer_digest

FILES = {"tokenizer.json": b"{}", "tokenizer_config.json": b"[]"}


def test_the_order_of_files_does_not_matter() -> None:
    """A worker lists them as it built them, a coordinator as it read them."""
    assert tokenizer_digest(dict(reversed(FILES.items()))) == tokenizer_digest(FILES)


def test_any_other_name_or_content_has_another_digest() -> None:
    """Nor does moving bytes from one file's name or content to the next keep it."""
    digests = [
        tokenizer_digest(files)
        for files in (
            FILES,
            {**FILES, "tokenizer.json": b"{} "},
            {"tokenizer.json": b"{}", "config.json": b"[]"},
            {"tokenizer.json": b"{}"},
            {"a": b"b", "c": b"d"},
            {"a": b"bc", "d": b""},
            {},
        )
    ]
    assert len(set(digests)) == len(digests)


def test_the_digest_is_the_same_in_every_release() -> None:
    """Peers of different releases compare it."""
    assert tokenizer_digest(FILES) == "c5156fda93f0398dc4eff000eda2be8e23c092cf51f68899c0557165764db0e1"
