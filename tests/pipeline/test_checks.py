"""Stop a build with unanswered questions, and say which option lets it pass."""

from __future__ import annotations

import pytest

from earmark.schemas.errors import EarmarkError
from earmark.tasks.pipeline.ask import check_failed


@pytest.mark.parametrize(
    ("reason", "option"), [("bad_request", "most_failed"), ("low_share", "least_share"), ("timed_out", None)]
)
def test_a_stop_names_the_option_that_takes_such_rows(reason: str, option: str | None) -> None:
    failures = [{"reason": reason, "detail": "as the server said", "final": False}]
    with pytest.raises(EarmarkError, match=r"^1 of 4 requests have no answer yet") as stopped:
        check_failed(0.02, 4, failures)
    assert str(stopped.value).endswith(f": {option})" if option else "earmark resume")
