"""A session with a model: the store's ledger, the clips' audio, progress on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from schemas.annotation import AnnotatorConfig
from schemas.errors import EarmarkError
from tasks.annotation.backend import Media
from tasks.annotation.progress import Progress
from tasks.annotation.request import Audio
from tasks.annotation.session import Session
from tasks.audio.encode import Encoder
from tasks.audio.measure import measure
from tasks.ledger import ledger_address
from tasks.progress import telling
from tasks.store.versions import Store

LASTING = frozenset({"bad_request", "over_limit", "bad_media"})  # asked anew by a further run, with the same outcome


@contextmanager
def asking(store: Store, config: AnnotatorConfig) -> Iterator[Session]:
    """An annotator whose pace, budget and progress all shards of a build share."""
    with telling(f"ask {config.annotator}") as tell:

        def report(progress: Progress) -> None:
            tell(progress.line())

        with Session(config, ledger=ledger_address(store), media=clip_media(), on_progress=report) as session:
            yield session


def clip_media() -> Media:
    """How annotators get at clips: encoded for models, measured for builtin judges."""
    encoder = Encoder()

    def measured(part: Audio) -> dict[str, float]:
        samples, rate = encoder.span(part)
        return measure(samples, rate).as_dict()

    return Media(load_audio=encoder, measure=measured)


def check_failed(most: float, asked: int, failures: Sequence[Mapping[str, Any]]) -> None:
    """Stop a build that too many requests left without an answer that another run might still get.

    A request that the model cannot take, or whose clip cannot be read, is no such request: it stays a reject.

    Args:
        most: share of the requests that may stay without an answer.
        asked: how many requests there were.
        failures: those without an answer: rows with `reason` and `final`.

    Raises:
        EarmarkError: how many, and their commonest reason.
    """
    passing = [row["reason"] for row in failures if not row["final"] and row["reason"] not in LASTING]
    if passing and len(passing) > most * asked:
        commonest = max(sorted(set(passing)), key=passing.count)
        raise EarmarkError(
            f"{len(passing)} of {asked} requests have no answer yet, most for '{commonest}'; answers are kept: "
            "when the cause is gone, go on with: earmark resume"
        )
