"""Items that share a tie, directly or through others, are one group; groups are numbered as their first items come."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.pipeline.grouping import group

TIES = st.lists(st.lists(st.integers(0, 25), max_size=3), max_size=30)


@given(TIES)
def test_items_share_a_group_if_a_chain_of_ties_leads_from_one_to_the_other(ties: list[list[int]]) -> None:
    sets = [{item} for item in range(len(ties))]
    for one, own in enumerate(ties):
        for other in range(one):
            if set(own) & set(ties[other]) and sets[one] is not sets[other]:
                sets[one] |= sets[other]
                for item in sets[other]:
                    sets[item] = sets[one]
    firsts = sorted({min(items) for items in sets})
    assert group(ties) == [firsts.index(min(items)) for items in sets]


def test_a_chain_longer_than_any_depth_of_calls_is_one_group() -> None:
    assert set(group([(tie, tie + 1) for tie in reversed(range(100_000))])) == {0}


def test_to_group_needs_no_scipy() -> None:
    code = "import sys, earmark.tasks.pipeline.grouping as new; new.group([[1], [1]]); print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
