"""Tests of media of prompts."""

from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.protocol.prefix_hash import prefix_hashes


def test_a_prompt_is_collapsed_for_its_worker_with_what_was_generated_after_it() -> None:
    """A worker expands the placeholders itself; tokens that follow the prompt stay as they are."""
    item = MediaContent(b"x")
    prompt = MediaPrompt([item], [1, 9, 2], length=5, spans=[(1, 3)])
    assert prompt.collapsed([1, 9, 9, 9, 2]) == [1, 9, 2]
    assert prompt.collapsed([1, 9, 9, 9, 2, 7, 9]) == [1, 9, 2, 7, 9]


def test_the_beginning_of_a_prompt_is_as_long_as_its_items() -> None:
    """Each takes the place of one id, or of as many as each other."""
    items = [MediaContent(b"x"), MediaContent(b"y")]
    prompt = MediaPrompt(items, [1, 9, 2, 9, 3], length=10, spans=[(1, 3), (5, 4)])
    assert [prompt.expanded_length(count, before) for count, before in ((1, 0), (3, 1), (5, 2))] == [1, 5, 10]
    inserted = MediaPrompt(items, [1, 2, 3], length=10, spans=[(1, 3), (5, 4)])
    assert inserted.expanded_length(2, 1) == 5


def test_a_prompt_may_have_more_placeholders_than_items() -> None:
    """What is found is like the placeholders of its items; nothing is where these are inserted."""
    items = [MediaContent(b"x"), MediaContent(b"y")]
    spans = [(1, 3), (5, 4)]
    assert not MediaPrompt(items, [1, 9, 2, 9, 3], length=10, spans=spans).leaves_placeholder()
    assert MediaPrompt(items, [1, 9, 2, 9, 3, 9], length=11, spans=spans).leaves_placeholder()
    wide = [1, 9, 0, 2, 9, 0, 3, 9]
    assert not MediaPrompt(items, wide, length=11, spans=spans).leaves_placeholder()
    assert MediaPrompt(items, [*wide, 0], length=12, spans=spans).leaves_placeholder()
    assert not MediaPrompt(items, [1, 2, 3], length=10, spans=spans).leaves_placeholder()


def test_items_are_counted_by_modality_and_named_by_digest() -> None:
    """Usage has the tokens of all items of a kind; workers get their digests."""
    item = MediaContent(b"x")
    prompt = MediaPrompt([item, item], [9, 9], length=7, spans=[(0, 3), (3, 4)], options_json="{}")
    assert prompt.tokens == {"image": 7}
    assert [(each.digest, each.options_json) for each in prompt.messages()] == [(item.digest, "{}")] * 2
    embeds = MediaPrompt([MediaContent(b"x", "image_embeds")], [9], length=3, spans=[(0, 3)])
    assert (embeds.tokens, embeds.messages()[0].modality) == ({"image": 3}, "image_embeds")


def test_names_of_prefixes_tell_pictures_apart() -> None:
    """Two pictures at one place have equal ids in the prompt, and other names from there on; before it, equal ones."""
    token_ids = [1] * 64 + [9] * 64 + [2] * 64
    one, other, options = (
        MediaPrompt([MediaContent(data)], [], len(token_ids), [(64, 64)], options_json)
        for data, options_json in ((b"x", None), (b"y", None), (b"x", "{}"))
    )
    names = [prefix_hashes(prompt.marked(token_ids)) for prompt in (one, other, options)]
    assert len({each[0] for each in names}) == 1
    assert len({each[1] for each in names}) == len({each[2] for each in names}) == 3
