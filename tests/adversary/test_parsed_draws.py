"""Seeds draw requests whose replies look like what parsers search for."""

import json
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.adversary.attack import Attack
from tests.adversary.model import write_large_model
from tests.adversary.parsed_draws import draw_parsed
from tests.adversary.values import LONG_TOKENS, VOCABULARY


@cache
def _parsed_attacks() -> list[Attack]:
    return [draw_parsed(seed) for seed in range(1_000)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The attacked model's."""
    folder: Path = write_large_model(tmp_path_factory.mktemp("model"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_always_draws_the_same(seed: int) -> None:
    """Name and body."""
    first, second = draw_parsed(seed), draw_parsed(seed)

    assert (first.name, first.body("m")) == (second.name, second.body("m"))


def test_every_route_that_parses_is_parsed_attacks() -> None:
    """With and without tools, streamed and whole, one choice and many."""
    generated = [attack for attack in _parsed_attacks() if not attack.path.endswith("/derender")]
    drawn = [(attack.path, json.loads(attack.body("m"))) for attack in generated]

    assert {path for path, _ in drawn} == {"/v1/chat/completions", "/v1/responses", "/v1/messages"}
    assert {len(body.get("tools", ())) for _, body in drawn} == {0, 1, 50}
    assert {body.get("stream", False) for _, body in drawn} == {False, True}
    assert {body.get("n", 1) for _, body in drawn} == {1, 8, 64, 256}


def test_replies_that_a_request_brings_are_parsed_too() -> None:
    """Few and long ones, and many."""
    brought = [attack for attack in _parsed_attacks() if attack.path.endswith("/derender")]
    shapes = {attack.fields["generate_response"].name.partition(" of ")[0] for attack in brought}

    assert {"1 x 30,000", "250 x 4,000", "16,000 x 60", "16,000 x 1"} <= shapes
    body = json.loads(next(attack for attack in brought if "8 x 60" in attack.name).body("m"))
    assert [len(choice["token_ids"]) for choice in body["generate_response"]["choices"]] == [60] * 8


def test_replies_consist_of_what_their_names_say(tokenizer: Tokenizer) -> None:
    """The ids are those of the attacked model."""
    texts = {
        attack.fields["allowed_token_ids"].name: tokenizer.decode(json.loads(attack.body("m"))["allowed_token_ids"])
        for attack in _parsed_attacks()
        if "allowed_token_ids" in attack.fields
    }

    assert texts["only '\"'"] == '"'
    assert texts["signs of JSON"] == '{}[]",:1a'
    assert texts["calls and ends"] == "<tool_call></tool_call>"
    assert texts["thoughts and ends"] == "<think></think>"
    assert texts["'=' by 128"] == "=" * 128


def test_the_attacked_model_has_long_tokens_and_special_ones(tokenizer: Tokenizer) -> None:
    """As real ones; their places in it are what values name."""
    assert {token_id: tokenizer.decode([token_id]) for token_id in LONG_TOKENS} == LONG_TOKENS
    assert tokenizer.get_vocab_size() == VOCABULARY
    assert tokenizer.decode([VOCABULARY - 2]) == ""
