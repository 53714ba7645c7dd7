"""A session with a model: the store's ledger, the clips' audio, progress on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.outcome import Outcome, Reject
from earmark.tasks.annotation.progress import Progress
from earmark.tasks.annotation.request import Audio, Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.audio.key import key_of
from earmark.tasks.audio.measure import measure
from earmark.tasks.build.progress import say, telling
from earmark.tasks.build.remote_sessions import SharedSession
from earmark.tasks.store.versions import Store

LASTING = frozenset({"bad_request", "over_limit", "bad_media"})  # asked anew by a further run, with the same outcome


class Fault(NamedTuple):
    """What a check holds against an answer: a fixed word, and what was expected and found, in one line."""

    reason: str
    detail: str


Check: TypeAlias = Callable[[int, Any], Fault | None]
"""Looks at the answer's value to the request at a place of the list; None accepts it. Pure: a resumed build checks
again what the ledger holds, and must come to the same."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How a request ended that may be asked several times.

    Attributes:
        outcome: the answer that passed its check, else the last one; or the engine's reject.
        sample: number of the draw that it is, counted from 0.
        fault: what the check holds against the last answer; None if it passed, or if there is none.
        earlier: the draws before it, which failed their check, in order.
    """

    outcome: Outcome
    sample: int
    fault: Fault | None = None
    earlier: tuple[Checked, ...] = ()

    @property
    def tries(self) -> int:
        """How many draws were asked for."""
        return self.sample + 1

    @property
    def failure(self) -> tuple[str, str] | None:
        """Reason and detail for the table of rejects; None if the answer is good."""
        if isinstance(self.outcome, Reject):
            return self.outcome.reason, self.outcome.detail
        return self.fault


def ask_checked(session: Session, requests: Sequence[Request], check: Check, tries: int) -> list[Checked]:
    """Ask; what fails its check is asked again as the next draw (`Request.sample`), up to a number of tries.

    Every draw is a request with a key of its own, so the ledger keeps each, and a build that goes on after a kill
    walks the same way through them without asking. A request that the engine ends without an answer is not asked
    again here: the engine has tried.

    Args:
        session: who is asked.
        requests: what is asked, with the number of the first draw.
        check: judges an answer.
        tries: draws of one request at most, 1 or more.

    Returns:
        How each request ended, in the order given.

    Raises:
        StopRun, LedgerError: as `Session.ask`.
    """
    ended: dict[int, Checked] = {}
    places = list(range(len(requests)))
    for sample in range(tries):
        drawn = [replace(requests[place], sample=requests[place].sample + sample) for place in places]
        for place, outcome in zip(places, session.ask(drawn).outcomes, strict=True):
            fault = None if isinstance(outcome, Reject) else check(place, outcome.value)
            before = ended.get(place)
            earlier = (*before.earlier, replace(before, earlier=())) if before else ()
            ended[place] = Checked(outcome, sample, fault, earlier)
        places = [place for place in places if ended[place].fault is not None]
        if not places:
            break
    return [ended[place] for place in range(len(requests))]


@contextmanager
def asking(store: Store, config: AnnotatorConfig, media: Media | None = None) -> Iterator[Session]:
    """An annotator whose pace, budget and progress all shards of a build share; several may share one `media`."""
    with telling(f"ask {config.annotator}") as tell:

        def report(progress: Progress) -> None:
            tell(progress.line())

        with SharedSession(store, config, media or clip_media(), on_progress=report) as session:
            try:
                yield session
            finally:
                if count := session.odd_usage:
                    say(
                        f"{config.annotator}: {count:,} answers came with token counts that cannot be; for these, the "
                        "most that they may have cost counts as spent (earmark ledger stats: odd_usage)"
                    )


def clip_media(encoder: Encoder | None = None) -> Media:
    """How annotators get at clips: encoded for models, measured for builtin judges."""
    encoder = encoder or Encoder()
    return Media(load_audio=encoder, measure=partial(_measured, encoder))


def _measured(encoder: Encoder, part: Audio) -> dict[str, float]:
    samples, rate = encoder.span(part)
    return {**measure(samples, rate).as_dict(), "key": float(key_of(samples, rate))}


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
