"""Rules for replies are read from a file, and say what is wrong with it."""

from pathlib import Path

import pytest

from tokenwire.worker.simulated_engine.reply_rules import ReplyRule, read_reply_rules


def test_groups_of_the_match_go_into_the_reply() -> None:
    """Only marks that name a group of the expression are replaced; a group that took no part is empty."""
    reply_to = ReplyRule(r"I am (?P<name>\w+)(?P<age>, \d+)?", 'Hi {{name}}{{age}}! {{other}} {"a": {}}').matcher()
    assert reply_to("Hello, I am Ada.") == 'Hi Ada! {{other}} {"a": {}}'
    assert reply_to("I am Ada, 36.") == 'Hi Ada, 36! {{other}} {"a": {}}'
    assert reply_to("Hello.") is None


def test_a_reply_has_a_fixed_head() -> None:
    """It is what comes before the first group."""
    rule = ReplyRule(r"(?P<a>x)", "{{b}} is {{a}}")
    assert (rule.head, rule.is_fixed) == ("{{b}} is ", False)
    assert (ReplyRule("x", "").head, ReplyRule("x", "{{b}}").is_fixed) == ("", True)


def test_rules_are_read_in_order(tmp_path: Path) -> None:
    """A file has a list of them."""
    (path := tmp_path / "rules.json").write_text('[{"prompt": "a|b", "reply": "one"}, {"reply": "", "prompt": ""}]')
    assert read_reply_rules(path) == (ReplyRule("a|b", "one"), ReplyRule("", ""))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not JSON"),
        ("{}", "must hold a list of rules, at least one"),
        ("[]", "must hold a list of rules, at least one"),
        ('[{"prompt": "a", "reply": "b"}, "c"]', r'rule 2 of .* must be {"prompt": "expression", "reply": "text"}'),
        ('[{"prompt": "a"}]', "rule 1 of .* must be"),
        ('[{"prompt": "a", "reply": 5}]', "rule 1 of .* must be"),
        ('[{"prompt": "(", "reply": "b"}]', "rule 1 of .*: missing"),
        ('[{"prompt": "(?P<a>.)", "reply": "{{a}}"}]', "must begin with text of its own"),
    ],
)
def test_a_mistake_is_named(content: str, message: str, tmp_path: Path) -> None:
    """With the rule's number."""
    (path := tmp_path / "rules.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_reply_rules(path)
