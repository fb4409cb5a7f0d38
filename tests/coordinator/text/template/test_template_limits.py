"""Templates of workers: those of real models are used, and none that would stop a coordinator."""

import pytest

from tests.coordinator.text.template.real_templates import real_templates
from tokenwire.coordinator.text.template.template_limits import check_templates
from tokenwire.errors import InvalidRequest


def test_templates_of_real_models_are_used() -> None:
    """All of them, with 28,000 added tokens, and each four times as long with 10,000."""
    for source in real_templates().values():
        check_templates([source], 28_000)
        check_templates([source] * 4, 10_000)


@pytest.mark.parametrize(
    ("sources", "added_tokens", "why"),
    [
        (["z" * 2**18 + "z"], 0, "262,144 characters"),
        (["{{[" + "a," * 8192 + "]}}"], 0, "16,384 parts"),
        (["{{a}}" * 3000] * 2, 0, "16,384 parts"),
        (["z" * 2**18], 5000, "too many for 5,000 added tokens"),
    ],
    ids=["long", "many parts", "many parts together", "searched for many tokens"],
)
def test_templates_that_would_stop_others_are_refused(sources: list[str], added_tokens: int, why: str) -> None:
    """Each took seconds, in which Python runs nothing else, or a gigabyte."""
    with pytest.raises(InvalidRequest, match=why):
        check_templates(sources, added_tokens)


def test_what_is_no_template_is_left_to_the_compiler() -> None:
    """It says what is wrong where it is used."""
    check_templates(["{% if %"], 1)
