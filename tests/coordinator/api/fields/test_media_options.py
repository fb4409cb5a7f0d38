"""Options for media change what they cost, so they are for trusted clients."""

import json
from dataclasses import replace

import pytest

from tokenwire.coordinator.api.fields.media_options import MediaOptionFields
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.errors import InvalidRequest

_OPTIONS = {"mm_processor_kwargs": {"size": {"longest_edge": 128}}, "media_io_kwargs": {"image": {"rgba": 1}}}


def test_trusted_options_are_passed_on_as_json() -> None:
    """In an order of their own, so that equal ones have one name; without any, or empty ones, there is nothing."""
    trusting = replace(ApiSettings(), trust_media_options=True)
    given = MediaOptionFields.model_validate(_OPTIONS).media_options(trusting)
    turned = MediaOptionFields.model_validate(dict(reversed(_OPTIONS.items()))).media_options(trusting)

    assert given is not None
    assert json.loads(given) == _OPTIONS
    assert turned == given
    assert MediaOptionFields(mm_processor_kwargs={}).media_options(ApiSettings()) is None


@pytest.mark.parametrize("name", [*_OPTIONS])
def test_others_are_refused_with_the_option_that_trusts_them(name: str) -> None:
    """By the name of the field."""
    fields = MediaOptionFields.model_validate({name: _OPTIONS[name]})
    with pytest.raises(InvalidRequest, match=f"Per-request {name} .* --trust-request-mm-kwargs") as refused:
        fields.media_options(ApiSettings())

    assert refused.value.param == name
