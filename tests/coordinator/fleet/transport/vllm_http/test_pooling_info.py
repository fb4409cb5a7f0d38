"""What a plain vLLM server pools for."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plain_vllm_server import FakeVllmServer
from tokenwire.coordinator.fleet.transport.vllm_http.http_client import VllmHttpClient
from tokenwire.coordinator.fleet.transport.vllm_http.pooling_info import pooling_from_files, probe_task
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb


@pytest.mark.parametrize("pools_for", [("embed", 384), ("classify", 1), ("token_embed", 96), None])
async def test_the_server_says_which_task_it_does(server: FakeVllmServer, pools_for: tuple[str, int] | None) -> None:
    """It rejects the other ones, or has no such route; the width is that of a result."""
    server.pools_for = pools_for
    client = VllmHttpClient(server.url, None)

    assert await probe_task(client, "m") == pools_for
    await client.close()


async def test_a_server_with_another_task_is_not_ready(server: FakeVllmServer) -> None:
    """With what it says itself."""
    server.pools_for = ("plugin", 8)
    client = VllmHttpClient(server.url, None)

    with pytest.raises(Unavailable, match=r"none of the tasks .* Supported tasks: .*plugin"):
        await probe_task(client, "m")
    await client.close()


def described(folder: Path, task: str, width: int, **files: dict[str, Any]) -> pb.PoolingModel:
    """Describe a model with these files."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return pooling_from_files(folder, task, width)


def test_an_embedding_model_is_described_by_its_files(tmp_path: Path) -> None:
    """As a worker describes it, which asks vLLM."""
    model = described(
        tmp_path,
        "embed",
        384,
        config={"type_vocab_size": 2, "pad_token_id": 0},
        tokenizer_config={"pad_token": "[PAD]", "truncation_side": "left"},
        sentence_roberta_config={"max_seq_length": 256, "do_lower_case": True},
        config_sentence_transformers={"prompts": {"query": "Find: ", "other": 3}},
    )

    assert model == pb.PoolingModel(
        task="embed",
        score="bi-encoder",
        instructions={"query": "Find: "},
        lower_case=True,
        pad_token_id=0,
        truncation_side="left",
        width=384,
        token_types=True,
    )


def test_a_class_is_named_as_transformers_names_it(tmp_path: Path) -> None:
    """A model with one class scores pairs, with a separator unless its configuration says otherwise."""
    one = described(tmp_path, "classify", 1, config={"architectures": ["RobertaForSequenceClassification"]})
    assert (list(one.labels), one.score, one.separates_texts, one.token_types) == (
        ["LABEL_0"],
        "cross-encoder",
        True,
        False,
    )
    two = described(tmp_path, "classify", 2, config={"id2label": {"0": "bad"}, "use_sep_token": False})
    assert (list(two.labels), two.score, two.separates_texts) == (["bad", "1"], "", False)
    assert described(tmp_path, "token_embed", 8).score == "late-interaction"


@pytest.mark.parametrize(("architecture", "own"), [("JinaVLForRanking", True), ("BertModel", False)])
def test_pairs_that_only_vllm_can_make_are_known(tmp_path: Path, architecture: str, own: bool) -> None:
    """By the model's architecture."""
    assert described(tmp_path, "classify", 1, config={"architectures": [architecture]}).own_pairs is own
    assert described(tmp_path, "classify", 1, config={"architectures": ["JinaForRanking"]}).score == ""


@pytest.mark.parametrize(
    ("tokenizer", "pad_token_id"),
    [
        ({}, None),
        ({"pad_token": None}, None),
        ({"pad_token": {"content": "<pad>"}, "added_tokens_decoder": {"7": {"content": "<pad>"}}}, 7),
        ({"pad_token": "<pad>", "added_tokens_decoder": {"7": {"content": "<s>"}}}, 3),
    ],
)
def test_the_padding_token_is_the_tokenizers(
    tmp_path: Path, tokenizer: dict[str, Any], pad_token_id: int | None
) -> None:
    """By its name; the model's configuration has the id where the tokenizer's does not."""
    model = described(tmp_path, "embed", 8, config={"pad_token_id": 3}, tokenizer_config=tokenizer)

    assert (model.pad_token_id if model.HasField("pad_token_id") else None) == pad_token_id
