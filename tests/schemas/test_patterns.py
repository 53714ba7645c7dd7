"""Users' regular expressions: what RE2 takes it finds as Python does, in a time that no pattern can blow up."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.rating_sources import for_re2, groups_in

ATOMS = st.sampled_from(
    ["a", "b", "_", "-", ".", r"\d", r"\w", r"\W", r"\s", r"\S", r"\D", "[a-c]", "[^_]", "[^]a]", r"[\w-]", r"[^\d\s]",
     r"\.", r"[\]]", "é", "^", "$", r"\Z", "(a)", "(?:ab|a)", "(?i:B)"]
)  # fmt: skip
PIECES = st.tuples(ATOMS, st.sampled_from(["", "", "", "?", "+", "*", "+?", "{2}", "{,2}", "{1,3}"])).map("".join)
PATTERNS = st.lists(PIECES, min_size=1, max_size=4).map("".join)
WHOLE = st.tuples(PATTERNS, PATTERNS).map(lambda two: f"(?P<system>{two[0]})(?:_(?P<content>{two[1]}))?")
TEXTS = st.text(st.sampled_from("aabbc__--.12 éßÉ١²\t\u2003]["), max_size=10)


@given(WHOLE, TEXTS)
def test_a_pattern_that_both_take_finds_the_same(pattern: str, text: str) -> None:
    try:
        re.compile(pattern)
    except re.error:
        with pytest.raises(ValueError, match="expected a"):
            for_re2(pattern)
        return
    match = re.search(pattern, text)
    try:
        found = groups_in(pattern, text)
    except ValueError:
        return
    assert found == (None if match is None else {name: held or "" for name, held in match.groupdict().items()})


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)*x", "([a-z]+)*_", "(a?){300}a{300}"])
def test_no_pattern_runs_on(pattern: str) -> None:
    before = time.process_time()
    groups_in(f"(?P<system>{pattern})", "a" * 4000 + "!")
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "pattern", ["(?=a)(?P<system>a)", r"(?P<system>a)(?P=system)", r"(?P<system>\ba)", "(?P<system>a++)",
                r"(?P<system>[\W])", "(?P<system>a)(?<!b)", "(?P<system>a{2000})", "(?x)(?P<system>a )"]
)  # fmt: skip
def test_what_it_cannot_search_is_refused_in_a_line(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"expected a") as refused:
        for_re2(pattern)
    assert "\n" not in str(refused.value)
