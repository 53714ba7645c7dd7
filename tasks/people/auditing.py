"""Start audits: people answer a version's rows like a model, without its labels, to check these. Rows, shown columns
and labels come from the corpus's evaluations: any question for a model suits a person."""

import hashlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from earmark.schemas.corpus import Corpus, names_clip
from earmark.schemas.errors import StoreError
from earmark.schemas.evaluations import Evaluation, Mode, names_image
from earmark.schemas.study import PAGES, PLAN, AnnotatorPage, Audited, StudyPlan, Trial
from earmark.tasks.evaluation.asking import swapped_sides
from earmark.tasks.evaluation.kinds import LETTERS, MeasuredSample, find_kind
from earmark.tasks.evaluation.reading import write_samples_template
from earmark.tasks.evaluation.samples import SamplePart, Samples, find_evaluation, select_samples
from earmark.tasks.people.choosing import LETTERS as SIDES
from earmark.tasks.people.choosing import halved, page_names, shared
from earmark.tasks.people.page import picture_address, render, sound_address, write_page, write_plan
from earmark.tasks.store.folder import building
from earmark.tasks.store.sql import query, quoted
from earmark.tasks.store.versions import Store, Version

UNSURE = "unsure"
CANNOT_TELL = (UNSURE, "I cannot tell")
QUESTION = "label"
ASKED = "asked.csv"  # all samples of an exam without answers, as models' files have them


@dataclass(frozen=True)
class AuditOptions:
    """Options of an audit."""

    evaluation: str | None = None  # source of samples and labels; None for a corpus's only evaluation
    rows: int = 100  # number of rows, drawn from labels and strata in turn; of an exam, in proportion
    reviewers: int = 2  # people who answer each row
    pages: int = 2  # people in all
    stratify: str | None = None  # a group of the evaluation, or None
    # the split; None for the held-out splits, if any; `all` for every row
    split: str | None = None
    language: str | None = None  # only rows of this language
    seed: int = 17  # of every choice
    inside: bool = True  # whether clips are inside the pages
    roots: tuple[Path, ...] = ()  # folders to look through for clips that moved


def start_audit(version: Version, corpus: Corpus, store: Store, wish: AuditOptions, folder: Path) -> StudyPlan:
    """Draw rows and write a page for each reviewer, below an absolute folder, empty or new.

    Raises:
        StoreError: the evaluation or column is unknown, there are no rows, or the folder is not free.
        InputError: clips are missing or cannot be played.
    """
    evaluation = find_evaluation(corpus, wish.evaluation)
    mode = _mode(evaluation)
    if wish.stratify is not None and wish.stratify not in evaluation.groups:
        raise StoreError(f"--stratify {wish.stratify}: expected one of {', '.join(evaluation.groups) or 'none'}")
    with select_samples(version, corpus, evaluation, SamplePart(wish.split, wish.language)) as samples:
        if find_kind(evaluation.kind).exam:
            write_samples_template(samples.folder / ASKED, samples)
        totals = _draw_rows(samples, mode, wish)
        rows = [row for batch in samples.batches(1000, [*samples.columns, "stratum"]) for row in batch]
        clips = {sha256: one.path for sha256, one in samples.files(mode.columns, store, wish.roots).items()}
        pages = _pages(evaluation, rows, wish)
        audited = Audited(
            corpus=version.corpus,
            version=version.name,
            manifest_sha256=version.manifest.digest(),
            evaluation=evaluation.name,
            stratify=wish.stratify or "",
            sides=evaluation.sides,
            strata={row["id"]: row["stratum"] for row in rows},
            totals=totals,
            every=samples.connection.execute("SELECT count(*) FROM judged.everything").fetchall()[0][0],
        )
        plan = StudyPlan(
            study=f"{version.corpus}-{version.name}-{evaluation.name}",
            kind="audit",
            questions=(QUESTION,),
            choices=tuple(value for value, _ in [*find_kind(evaluation.kind).answers(LETTERS), CANNOT_TELL]),
            most_failed=1.0,
            prompts={},
            generations={},
            pages=pages,
            audited=audited,
        )
        with building(folder, force=None, record=PLAN) as place:
            _write_pages(plan, evaluation, mode, {row["id"]: row for row in rows}, clips, wish, place / PAGES)
            write_plan(plan, place)
            if find_kind(evaluation.kind).exam:
                shutil.copyfile(samples.folder / ASKED, place / ASKED)
    return plan


def _mode(evaluation: Evaluation) -> Mode:
    """Return the first of the evaluation's modes that shows a whole sample."""
    for mode in evaluation.modes:
        if mode.items is None and mode.each is None and find_kind(evaluation.kind).question:
            return mode
    raise StoreError(f"evaluation '{evaluation.name}' has no question that a person answers about a whole row")


def _draw_rows(samples: Samples, mode: Mode, wish: AuditOptions) -> dict[str, int]:
    """Keep only the drawn rows among the samples; return the numbers of rows by label and stratum.

    Questions with options are an exam, and are drawn in proportion to strata; labels of others are checked one by one.

    Rows without their clips or picture in the version are left out: nobody can hear or see them.
    """
    columns = [f"coalesce({quoted(name)}::VARCHAR, '–')" for name in (wish.stratify or "").split("+") if name]
    stratum = " || ' ' || ".join(columns) or "'all'"
    media = [name for name in mode.columns if names_clip(name) or names_image(name)]
    needed = [f"{quoted(name)} IS NOT NULL" for name in media if not name.startswith("reference")]
    samples.connection.execute(
        f"CREATE TABLE judged.strata AS SELECT *, {stratum} AS stratum FROM judged.samples "
        f"WHERE {' AND '.join(needed) or 'true'}"
    )
    counted = samples.connection.execute(
        "SELECT target::VARCHAR, stratum, count(*) FROM judged.strata GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    if not counted:
        unread = samples.version.manifest.config.get("audio") == "none"
        raise StoreError(
            "no row of this version has the clips or pictures that it is about: nothing to audit"
            + ('; build it again with audio = "index" in the config' if unread else "")
        )
    drawn = query("people/proportional_rows" if find_kind(samples.evaluation.kind).exam else "people/audited_rows")
    samples.connection.execute(
        f"CREATE OR REPLACE TABLE judged.samples AS {drawn}", {"rows": wish.rows, "seed": str(wish.seed)}
    )
    return {f"{_label(target)}\t{value}": count for target, value, count in counted}


def _label(target: Any) -> str:
    return {"true": "yes", "false": "no"}.get(str(target).lower(), str(target))


def _pages(evaluation: Evaluation, rows: Sequence[MeasuredSample], wish: AuditOptions) -> tuple[AnnotatorPage, ...]:
    """Return the pages, with each row on several, in an order of each page's own."""
    names = page_names(max(wish.pages, wish.reviewers))
    mine = shared(rows, names, wish.reviewers, lambda name, row: _digits(wish, name, row["id"]))
    strata = {row["id"]: (_label(row["target"]), row["stratum"]) for row in rows}
    asked = [(name, row["id"]) for name, of_page in mine.items() for row in of_page]
    # the label's side is A on half of a page's rows and on half of a row's pages
    turned = halved(
        asked,
        lambda one: _digits(wish, "letters", *one),
        (lambda one: (one[0], strata[one[1]]), itemgetter(0)),
        (itemgetter(1), lambda one: strata[one[1]]),
    )
    trials = {
        name: [_trial(evaluation, row, wish, name, (name, row["id"]) in turned) for row in of_page]
        for name, of_page in mine.items()
    }
    return tuple(
        AnnotatorPage(name=name, key=secrets.token_hex(16), trials=tuple(sorted(of_page, key=lambda trial: trial.id)))
        for name, of_page in trials.items()
        if of_page
    )


def _trial(evaluation: Evaluation, row: MeasuredSample, wish: AuditOptions, name: str, turned: bool) -> Trial:
    compares = find_kind(evaluation.kind).compares
    label = _label(row["target"])
    swapped = compares and turned != (label == evaluation.sides[1])
    if compares:
        letters = dict(zip(evaluation.sides, reversed(SIDES) if swapped else SIDES, strict=True))
        label = letters.get(label, label)
    return Trial(
        id=_digits(wish, "row", name, row["id"]),
        kind="row",
        prompt_id=row["id"],
        expected={QUESTION: label},
        swapped=swapped,
    )


def _digits(wish: AuditOptions, *parts: str) -> str:
    return hashlib.sha256("\0".join((str(wish.seed), *parts)).encode()).hexdigest()[:16]


def _write_pages(
    plan: StudyPlan,
    evaluation: Evaluation,
    mode: Mode,
    rows: Mapping[str, Mapping[str, Any]],
    clips: Mapping[str, Path],
    wish: AuditOptions,
    folder: Path,
) -> None:
    folder.mkdir(parents=True)
    intro = render("screens/intro", kind="text", html=f"<h1>Audit</h1><p>{INTRO}</p>")
    for page in plan.pages:
        used: dict[str, str] = {}
        trials = []
        for trial in page.trials:
            values = _shown(mode, rows[trial.prompt_id], swapped=trial.swapped)
            for sha256 in _clips_of(values).values():
                if sha256[:16] not in used:
                    used[sha256[:16]] = sound_address(folder, clips[sha256], sha256, inside=wish.inside)
            trials.append((trial.id, _screen(evaluation, values)))
        write_page(folder, plan.study, page, 0.95, [intro], trials, used)


INTRO = (
    "Answer each row by yourself: what the data says of it is not shown. Use headphones, hear every clip to its end, "
    "and say so where you cannot tell."
)


def _shown(mode: Mode, row: Mapping[str, Any], *, swapped: bool) -> dict[str, Any]:
    """Return a model's input, by the columns' names."""
    values = {column: row[column] for column in mode.shown.values() if row[column] is not None}
    return swapped_sides(values) if swapped else values


def _clips_of(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in values.items() if names_clip(name)}


def _screen(evaluation: Evaluation, values: Mapping[str, Any]) -> str:
    kind = find_kind(evaluation.kind)
    clips = {name: value[:16] for name, value in _clips_of(values).items()}
    sides = {letter: clips.pop(f"{letter}_audio") for letter in SIDES if f"{letter}_audio" in clips}
    if not sides and clips:
        sides = {"a": clips.pop(next(iter(clips)))}
    hidden = {name for name in values if names_clip(name) or names_image(name) or name == "options"}
    return render(
        "screens/row",
        texts={name.replace("_", " "): value for name, value in values.items() if name not in hidden and value},
        images=[
            picture_address(value["bytes"])
            for name, value in values.items()
            if names_image(name) and value.get("bytes")
        ],
        beside={name.removesuffix("_audio").replace("_", " "): clip for name, clip in clips.items()},
        clips=sides,
        question=evaluation.asks or kind.question.format(dimension=evaluation.dimension),
        choices=[*kind.answers(values.get("options") or ()), CANNOT_TELL],
        options=kind.exam,
    )
