"""Bodies with media in them are the JSON that they would be with the base64 written in."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.annotation.http import Base64, json_bytes

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.builds(Base64, st.binary(), st.text())),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


def written_in(value: Any) -> Any:
    """The same value with base64 as text."""
    if isinstance(value, Base64):
        return value.head + base64.b64encode(value.data).decode()
    if isinstance(value, dict):
        return {key: written_in(held) for key, held in value.items()}
    return [written_in(held) for held in value] if isinstance(value, list) else value


@pytest.mark.slow
@given(values)
def test_media_stand_where_their_base64_would(body: Any) -> None:
    assert json_bytes(body) == json.dumps(written_in(body)).encode()


def test_what_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError, match="expected JSON or Base64, found bytes"):
        json_bytes({"data": b"raw"})
