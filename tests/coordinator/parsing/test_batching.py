"""Which deltas are batched for a parser, and which are passed alone."""

import pytest

from tests.clock import Clock
from tests.coordinator.parsing.fakes import ScriptedRawParser
from tokenwire.coordinator.parsing.batching import BatchingFeed, ParserBudget, SpareTime
from tokenwire.coordinator.parsing.message import MOST_WAITING, MessageDelta, RawParser

MARK = 99


class ExpensiveParser(ScriptedRawParser):
    """Every call costs as many seconds as the length of the earlier text, as in vLLM's older parsers."""

    def __init__(self, cpu: Clock) -> None:
        super().__init__()
        self._cpu = cpu
        self._length = 0

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        self._length += len(text)
        self._cpu.now += self._length
        return super().feed(text, token_ids, finished)


def batching(parser: RawParser, cpu: Clock, *, per_token_s: float = 1.0, splits_text: bool = True) -> BatchingFeed:
    """Return a feed with clocks that do not advance by themselves."""
    budget = ParserBudget(per_token_s=per_token_s, cpu_clock=cpu, wall_clock=Clock(0.0))
    return BatchingFeed(parser, frozenset({MARK}), splits_text, budget)


def expensive(splits_text: bool = True) -> tuple[ScriptedRawParser, BatchingFeed]:
    """Return a parser that has become too expensive for a call per token, and its feed."""
    cpu = Clock(0.0)
    parser = ExpensiveParser(cpu)
    feed = batching(parser, cpu, splits_text=splits_text)
    feed.feed("x" * 1000, [1], False)
    parser.fed.clear()
    return parser, feed


def test_a_cheap_parser_is_called_for_every_token() -> None:
    """Nothing is batched while calls are within their budget."""
    parser = ScriptedRawParser()
    feed = batching(parser, Clock(0.0))
    assert [feed.feed(text, [1], False) for text in "abc"] == [MessageDelta(content=text) for text in "abc"]


def test_calls_that_are_cheap_by_themselves_are_made_for_every_token() -> None:
    """Text before a call streams as it is generated, even if each call takes more than a token's budget."""
    cpu = Clock(0.0)
    budget = ParserBudget(per_token_s=1.0, cheap_s=5.0, cpu_clock=cpu, wall_clock=Clock(0.0))
    parser = ExpensiveParser(cpu)
    feed = BatchingFeed(parser, frozenset({MARK}), True, budget)
    for _ in range(10):
        feed.feed("x", [1], False)
    fed = [text for text, _, _ in parser.fed]
    assert fed[:6] == ["x"] * 6
    assert len(fed) == 6  # the sixth took six seconds, for which six tokens are too few to pay


def test_a_little_time_beyond_budgets_lets_few_streams_be_read_token_by_token() -> None:
    """It is shared by all, and comes back with time; the longest delay holds without it too."""
    cpu, wall = Clock(0.0), Clock(0.0)
    budget = ParserBudget(1.0, 5.0, wait_s=1e9, cpu_clock=cpu, wall_clock=wall, spare=SpareTime(0.5, 1500.0, wall))
    one, two = (ExpensiveParser(cpu) for _ in range(2))
    feeds = [BatchingFeed(parser, frozenset({MARK}), True, budget) for parser in (one, two)]
    feeds[0].feed("x" * 1000, [1], False)  # 500 are left of 1,500, less the token's own
    for feed in feeds:
        assert feed.feed("y", [1], False) == (None if feed is feeds[0] else MessageDelta(content="y"))

    wall.now += 900  # 450 more
    assert feeds[0].feed("z", [1], False) is None
    wall.now += 100
    assert feeds[0].feed("z", [1], False) == MessageDelta(content="yzz")

    wall.now += 100
    assert feeds[0].feed("z", [1], False) is None


def test_work_is_linear_in_the_length() -> None:
    """Ten times the tokens cost about ten times the work, however a parser rescans."""
    costs = []
    for tokens in (1000, 10_000):
        cpu = Clock(0.0)
        feed = batching(ExpensiveParser(cpu), cpu, per_token_s=5.0)
        for _ in range(tokens):
            feed.feed("x", [1], False)
        feed.feed("", [2], True)
        costs.append(cpu.now / tokens)
    assert costs[1] < 2 * costs[0]
    assert costs[1] < 4 * 5.0


def test_batches_are_bounded() -> None:
    """A parser that takes its time for each character takes more of them no faster, and holds up all other streams."""
    parser, feed = expensive()
    for _ in range(3 * MOST_WAITING):
        assert len(feed.waiting) < MOST_WAITING
        feed.feed("x", [1], False)

    assert max(len(token_ids) for _, token_ids, _ in parser.fed) == MOST_WAITING
    assert sum(len(token_ids) for _, token_ids, _ in parser.fed) + len(feed.waiting) == 3 * MOST_WAITING


def test_batched_text_is_passed_at_the_end() -> None:
    """And the last delta is passed alone."""
    parser, feed = expensive()
    assert feed.feed("a", [1], False) is None
    assert feed.feed("b", [2], False) is None
    assert feed.feed("c", [3], True) == MessageDelta(content="abc")
    assert parser.fed == [("ab", [1, 2], False), ("c", [3], True)]


def test_a_special_token_is_passed_alone_after_batched_text() -> None:
    """It is a separate call, without delay."""
    parser, feed = expensive()
    feed.feed("a", [1], False)
    assert feed.feed("</think>", [MARK], False) == MessageDelta(content="a</think>")
    assert parser.fed == [("a", [1], False), ("</think>", [MARK], False)]


@pytest.mark.parametrize("text", ['": ', "<", "\n", 'x"', '\\\\"'])
def test_structural_text_is_passed_alone(text: str) -> None:
    """Quotation marks, tags and lines."""
    parser, feed = expensive()
    feed.feed("a", [1], False)
    feed.feed(text, [2], False)
    assert parser.texts == ["a", text]


@pytest.mark.parametrize("texts", [['\\"'], ["\\", '"'], ["\\\\\\", '"'], ["{}[]();:'"]])
def test_other_text_is_batched(texts: list[str]) -> None:
    """Including escaped quotation marks, even if the backslash is in the token before."""
    parser, feed = expensive()
    for text in texts:
        feed.feed(text, [1], False)
    assert parser.fed == []


@pytest.mark.parametrize(
    "texts", [["\\", "\\", '"'], ["\\\\", '"'], ["\\", '"', '"'], ["\\", "a", '"'], ["\\", "\\\\\\", '"']]
)
def test_an_unescaped_quotation_mark_is_passed_alone(texts: list[str]) -> None:
    """Backslashes escape each other, also across tokens, and each escapes one character only."""
    parser, feed = expensive()
    for text in texts:
        feed.feed(text, [1], False)
    assert parser.texts == ["".join(texts[:-1]), '"']


def test_a_special_token_ends_an_escape() -> None:
    """Text after a special token does not belong to the text before it."""
    parser, feed = expensive()
    for text, token_id in (("\\", 1), ("</think>", MARK), ('"', 2)):
        feed.feed(text, [token_id], False)
    assert parser.texts == ["\\", "</think>", '"']


def test_structural_text_is_batched_for_incremental_parsers() -> None:
    """Parsers on vLLM's parser engine accept deltas of any kind."""
    parser, feed = expensive(splits_text=False)
    feed.feed('{"a": "<b>\n"}', [1], False)
    assert parser.fed == []


def test_parts_of_a_character_are_passed_together() -> None:
    """Tokens without text are passed with the text that they complete."""
    parser = ScriptedRawParser()
    feed = batching(parser, Clock(0.0))
    assert feed.feed("", [1], False) is None
    assert feed.feed("é", [2], False) == MessageDelta(content="é")
    assert parser.fed == [("é", [1, 2], False)]


def test_text_is_delayed_only_up_to_the_limit() -> None:
    """A slow stream is passed on even if the parser is expensive."""
    cpu, wall = Clock(0.0), Clock(0.0)
    parser = ExpensiveParser(cpu)
    feed = BatchingFeed(
        parser, frozenset(), True, ParserBudget(per_token_s=1.0, wait_s=2.0, cpu_clock=cpu, wall_clock=wall)
    )
    feed.feed("x" * 1000, [1], False)
    wall.now = 1.9
    assert feed.feed("a", [2], False) is None
    wall.now = 2.0
    assert feed.feed("b", [3], False) == MessageDelta(content="ab")


def test_a_step_is_foreseen_that_passes_what_waits() -> None:
    """By a mark, by its structure, by the number of tokens, or by the time since the last call."""
    wall = Clock(0.0)
    cpu = Clock(0.0)
    budget = ParserBudget(per_token_s=1.0, wait_s=2.0, cpu_clock=cpu, wall_clock=wall)
    feed = BatchingFeed(ExpensiveParser(cpu), frozenset({MARK}), True, budget)
    feed.feed("x" * 2 * MOST_WAITING, [1], False)
    feed.feed("a", [2] * (MOST_WAITING - 2), False)

    assert not feed.passes("b", [3])
    assert feed.passes("b", [3, 3])
    assert feed.passes("b", [MARK])
    assert feed.passes("<", [3])
    wall.now = 2.0
    assert feed.passes("b", [3])
    assert len(feed.waiting) == MOST_WAITING - 2
