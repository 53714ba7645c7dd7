"""Draw a policy's completions on its training rows, each with its reward: `earmark eval rollouts`.

A policy has nothing to learn from rows it gets right in every draw; AnyAudio-Judge keeps 8,454 of 105,000 samples after
four draws. The results are a record beside the version, keyed by its digest, for `earmark export --rollouts`.
"""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earmark.schemas.annotation import DECIDES
from earmark.schemas.corpus import Corpus, View
from earmark.schemas.errors import EarmarkError, StoreError
from earmark.schemas.evaluations import Policy
from earmark.schemas.questions import Audio, AudioForm, Message, Part, Text, canonical
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.request import Answer, AskPlan, Outcome, Request
from earmark.tasks.annotation.sandbox import neutral
from earmark.tasks.exports.clips import ClipFile, clip_files
from earmark.tasks.exports.rows import ROLLOUTS, Selection, select_view
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.folder import file_word, version_facts, write_record
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.versions import Store, Version

# draws count from 0; without a completion the text is null, and the reason says why
COLUMNS = row_schema(
    "id string, draw int64, text string, reward float64, right bool, reason string, request_key string"
)


@dataclass(frozen=True)
class RolloutOptions:
    """Options of the draws: `view` (default the first with a reward), `draws` per row, one split, the first rows."""

    view: str | None = None
    draws: int = 4
    split: str | None = None
    limit: int | None = None
    roots: tuple[Path, ...] = ()


def roll(
    version: Version, corpus: Corpus, store: Store, config: Policy, wish: RolloutOptions, out: Path | None
) -> tuple[dict[str, Any], Path]:
    """Draw completions and write the record; return its facts (`rollouts.json`), and the folder.

    Run it again after a crash: the ledger holds the draws.

    Raises:
        StoreError: no such view, or no rows.
        StopRun: a fault of every request, or the budget's end.
        EarmarkError: no draw has a completion.
    """
    view = find_view(corpus, wish.view)
    rows: list[tuple[Any, ...]] = []
    with (
        _selected(version, corpus, store, view, wish, config) as (selection, clips),
        open_session(store, config) as session,
    ):
        with working(f"draw {view.name}", sum(selection.counts.values())) as work:
            for batch in _batches(selection):
                requests = [one for row in batch for one in requests_of(config, row, clips, wish.draws)]
                outcomes = iter(session.ask(requests).outcomes)
                rows += [_drawn(view, row, draw, next(outcomes)) for row in batch for draw in range(wish.draws)]
                work.advance(len(batch))
        spent, splits = session.spent_usd, list(selection.counts)
    if all(row[2] is None for row in rows):
        reason = Counter(row[5] for row in rows).most_common(1)[0][0]
        raise EarmarkError(f"no draw has a completion; most for '{reason}'")
    facts = {
        **version_facts(version),
        "view": view.name,
        "annotator": config.annotator,
        "temperature": config.temperature,
        "splits": splits,
        "limit": wish.limit,
        **summary(rows, wish.draws),
        "spent_usd": spent,
    }
    folder = out or store.root / "rollouts" / version.corpus / version.name / _name(facts, config)
    return facts, write_record(folder, ROLLOUTS, facts, rollouts=(COLUMNS, rows))


def forecast(version: Version, corpus: Corpus, store: Store, config: Policy, wish: RolloutOptions) -> AskPlan:
    """Count the requests of `roll` without asking."""
    view = find_view(corpus, wish.view)
    with (
        _selected(version, corpus, store, view, wish, config) as (selection, clips),
        open_session(store, config) as session,
    ):
        asked = (one for batch in _batches(selection) for row in batch
                 for one in requests_of(config, row, clips, wish.draws))  # fmt: skip
        told = session.forecast(asked)
        about = f"{wish.draws} draws of {sum(selection.counts.values()):,} rows of {view.name}"
        return {"annotator": config.annotator, "about": about, **told}


def find_view(corpus: Corpus, name: str | None) -> View:
    """Return the view of this name, or the first one, among the views with a reward.

    Raises:
        StoreError: there is none.
    """
    views = {view.name: view for view in corpus.views if view.reward is not None}
    if not views or (name is not None and name not in views):
        known = ", ".join(views) or "none"
        raise StoreError(f"{corpus.name} has no view {name or ''} with a reward for completions; such views: {known}")
    return views[name] if name else next(iter(views.values()))


def requests_of(config: Policy, row: Mapping[str, Any], clips: Mapping[str, ClipFile], draws: int) -> list[Request]:
    """Return the draws of a row's question: its pieces of text with the clips between them, as a trainer gets it."""
    form = AudioForm(**config.hearing.model_dump())
    prompt, audios = row["prompt"], row.get("audios") or []
    pieces = prompt if isinstance(prompt, list) else [*[""] * len(audios), prompt]
    parts: list[Part] = []
    for place, piece in enumerate(pieces):
        parts += [Text(neutral(piece))] if piece else []
        if place < len(audios):
            clip = clips[audios[place]]
            parts.append(Audio(audios[place], str(clip.path), duration_s=clip.duration_s, form=form))
    system = [Message.of("system", neutral(row["system"]))] if row.get("system") else []
    messages = [*system, Message("user", tuple(parts))]
    return [question(config, messages, sample=draw) for draw in range(draws)]


def summary(rows: list[tuple[Any, ...]], draws: int) -> dict[str, Any]:
    """Summarize the draws: numbers of rows right in 0, 1, … draws, and of rows for a trainer to keep."""
    right: Counter[str] = Counter()
    for row in rows:
        right[row[0]] += bool(row[4])
    times = Counter(right.values())
    rewards = [row[3] for row in rows if row[3] is not None]
    return {
        "draws": draws,
        "rows": len(right),
        "right_in": {str(number): times[number] for number in range(draws + 1)},
        "kept": len(right) - times[draws],
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "unanswered": dict(sorted(Counter(row[5] for row in rows if row[5] is not None).items())),
    }


def _drawn(view: View, row: Mapping[str, Any], draw: int, outcome: Outcome) -> tuple[Any, ...]:
    if not isinstance(outcome, Answer):
        return row["id"], draw, None, None, None, outcome.reason, outcome.key
    assert view.reward is not None
    reward, right = view.reward(outcome.value, row)
    return row["id"], draw, outcome.value, reward, right, None, outcome.key


@contextmanager
def _selected(
    version: Version, corpus: Corpus, store: Store, view: View, wish: RolloutOptions, config: Policy
) -> Iterator[tuple[Selection, dict[str, ClipFile]]]:
    with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
        spill = Path(temporary)
        words = config.own_prompts()
        with select_view(version, corpus, view, spill, wish.split, wish.limit, words=words) as selection:
            selection.check(view, clips=True)
            yield selection, clip_files(set(selection.clips()), version, store, spill / "clips", wish.roots)


def _batches(selection: Selection) -> Iterator[list[dict[str, Any]]]:
    for split in selection.counts:
        for batch in selection.rows(split):
            yield batch.to_pylist()


def _name(facts: Mapping[str, Any], config: Policy) -> str:
    """Return the folder's name for a policy: sampling settings other than the defaults add a digest."""
    parts = [facts["view"], facts["annotator"], *facts["splits"], f"{facts['draws']}-draws"]
    parts += [f"first-{facts['limit']}"] if facts["limit"] else []
    samples, usually = (one.model_dump(mode="json") for one in (config, Policy(annotator=config.annotator)))
    decides = samples.keys() & {*DECIDES, "hearing"}
    if other := {name: samples[name] for name in decides if samples[name] != usually[name]}:
        parts.append(hashlib.sha256(canonical(other).encode()).hexdigest()[:8])
    return file_word(*parts)
