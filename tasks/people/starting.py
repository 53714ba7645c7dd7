"""Start a study: from its config to a folder of pages."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import duckdb

from earmark.schemas.errors import InputError
from earmark.schemas.places import clips_folder
from earmark.schemas.reasons import AudioFault, Note, Reject, shown
from earmark.schemas.study import PAGES, PLAN, Heard, Study, StudyPlan, Wanted
from earmark.tasks.evaluation.listening import playable, scored_clips
from earmark.tasks.importers.cells import given
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt, read_generations, read_prompts
from earmark.tasks.importers.table import named_rows, table_file
from earmark.tasks.people.choosing import OTHER, Known, Pair, TrialMaterial, pages_of
from earmark.tasks.people.page import clip_path, write_pages, write_plan
from earmark.tasks.store.folder import building
from earmark.tasks.store.sql import query, view_parquet
from earmark.tasks.store.versions import Store

Read = TypeVar("Read", MusicPrompt, ListedGeneration)


def start_study(study: Study, folder: Path, store: Store) -> tuple[StudyPlan, list[Reject]]:
    """Write a study's plan, a page for each annotator, and clips beside them if so configured.

    Return the plan, and the unusable rows of prompts and generations.

    Args:
        folder: absolute; empty or new.
        store: store of the version with the uncertain pairs or the scores, if the config names one.

    Raises:
        InputError: a table, clip or text cannot be read, or there is too little for the config.
        StoreError: the folder is not free, or the version is missing.
    """
    material, rejects = _material(study, store)
    pages = pages_of(study, material, secrets.token_bytes(32))
    used = {clip for page in pages for trial in page.trials for clip in trial.clips.values()}
    used |= {clip for example in study.examples for clip in (example.a, example.b)}
    if unknown := sorted(used - material.generations.keys()):
        raise InputError(f"examples: generation '{shown(unknown[0])}' is not among those of {study.generations}")
    for one in study.examples:
        if one.a == one.b or len({material.generations[clip].prompt_id for clip in (one.a, one.b)}) > 1:
            found = f"found '{shown(one.a)}' and '{shown(one.b)}'"
            raise InputError(f"examples: expected two generations of one prompt, {found}")
    prompts, generations = {}, {}
    for clip in sorted(used):
        made = material.generations[clip]
        fields = {name: getattr(made, name) for name in ("prompt_id", "model", "audio", "conditioned_on")}
        generations[clip] = Heard(**fields, sha256=material.digests[clip])
        prompt = material.prompts[made.prompt_id]
        fields = {name: getattr(prompt, name) for name in ("text", "lyrics", "reference_caption")}
        prompts[made.prompt_id] = Wanted(**fields, reference=prompt.reference_audio)
    generations_in, prompts_in = _folders(study, any(prompt.reference for prompt in prompts.values()))
    plan = StudyPlan(
        study=study.name,
        kind=study.kind,
        questions=tuple(question.name for question in study.questions),
        choices=_choices(study),
        most_failed=study.checks.most_failed,
        prompts=dict(sorted(prompts.items())),
        generations=generations,
        pages=pages,
        generations_in=generations_in,
        prompts_in=prompts_in,
    )
    with building(folder, force=None, record=PLAN) as place:
        write_pages(study, plan, place / PAGES)
        write_plan(plan, place)
    return plan, rejects


def _folders(study: Study, references: bool) -> tuple[str, str]:
    """Return the folders that clips of both tables are named from, below their common one; empty if it holds both."""
    if not references:
        return "", ""
    places = [os.path.normpath(clips_folder(study.path(table))) for table in (study.generations, study.prompts)]
    common = os.path.commonpath(places)
    below = ["" if place == common else Path(place).relative_to(common).as_posix() for place in places]
    return below[0], below[1]


def _choices(study: Study) -> tuple[str, ...]:
    if study.kind == "ratings":
        return tuple(str(value) for value in range(study.scale[0], study.scale[1] + 1))
    return ("a", "b", "tie") if study.ties else ("a", "b")


def _material(study: Study, store: Store) -> tuple[TrialMaterial, list[Reject]]:
    rejects: list[Reject] = []
    if study.scored_in:
        return scored_material(study, study.scored_in, store), rejects
    prompts = {one.prompt_id: one for one in _usable(read_prompts(study.path(study.prompts), study.prompts), rejects)}
    generations = {}
    for one in _usable(read_generations(study.path(study.generations), study.generations), rejects):
        if one.prompt_id in prompts:
            generations[one.generation_id] = one
        else:
            detail = f"expected a prompt of {study.prompts}, found '{one.prompt_id}'"
            rejects.append(Reject(one.generation_id, "unknown_prompt", detail, one.source_file, one.line))
    digests = _playable(study, list(generations.values()), rejects)
    generations = {i: generations[i] for i in digests}
    if not generations:
        first = f": {rejects[0].source_file}, line {rejects[0].line}: {rejects[0].detail}" if rejects else ""
        raise InputError(f"{study.generations}: expected clips that can be played, found none{first}")
    material = TrialMaterial(
        prompts=prompts,
        generations=generations,
        digests=digests,
        groups=_groups(study) if study.kind == "ratings" else {},
        uncertain=_uncertain(store, study.uncertain_in) if study.uncertain_in else (),
        known=_known(study, generations) if study.checks.known else (),
    )
    return material, rejects


def _playable(study: Study, generations: list[ListedGeneration], rejects: list[Reject]) -> dict[str, str]:
    """Return the SHA-256 of each clip, if decodable and not silent; add the others to `rejects`."""
    paths = [clip_path(study, study.generations, one.audio) for one in generations]
    digests = {}
    for made, clip in zip(generations, playable(paths), strict=True):
        if isinstance(clip, AudioFault):
            rejects.append(Reject(made.generation_id, clip.reason, clip.detail, made.source_file, made.line))
        else:
            digests[made.generation_id] = clip
    return digests


def _usable(rows: Iterable[Read | Reject | Note], rejects: list[Reject]) -> Iterable[Read]:
    """Yield the first row of each id."""
    lines: dict[str, int] = {}
    for row in rows:
        if isinstance(row, Reject):
            rejects.append(row)
        elif not isinstance(row, Note):
            name = row.generation_id if isinstance(row, ListedGeneration) else row.prompt_id
            if name in lines:
                detail = f"expected one row of '{name}', found another in line {lines[name]}"
                rejects.append(Reject(name, "duplicate_id", detail, row.source_file, row.line))
            else:
                lines[name] = row.line
                yield row


def _groups(study: Study) -> dict[str, str]:
    names = {"prompt_id": "prompt_id", "group": "group"}
    rows = named_rows(table_file(study.path(study.prompts), study.prompts), names, {})
    return {str(row["prompt_id"]): str(row["group"]).strip() for _, row in rows if isinstance(row, dict)}


def _known(study: Study, generations: dict[str, ListedGeneration]) -> list[Known]:
    written = study.checks.known or ""
    file = table_file(study.path(written), written)
    questions = {question.name: question.name for question in study.questions}
    sides = {"generation_a": "generation_a", "generation_b": "generation_b"}
    known: dict[Pair, dict[str, str]] = {}
    for line, row in named_rows(file, sides, questions):
        if not isinstance(row, dict):
            continue
        made = [generations.get(str(row[side])) for side in sides]
        if made[0] is None or made[1] is None or made[0].prompt_id != made[1].prompt_id:
            raise InputError(f"{file.name}, line {line}: expected two generations of one prompt in {study.generations}")
        expected = {name: str(row[name]).strip().lower() for name in questions if given(row[name])}
        if not expected or not set(expected.values()) <= {"a", "b"}:
            raise InputError(
                f"{file.name}, line {line}: expected a or b for one question or more: {', '.join(questions)}"
            )
        first, second = sorted(one.generation_id for one in made if one is not None)
        if first != made[0].generation_id:  # the same pair in either order
            expected = {name: OTHER[value] for name, value in expected.items()}
        before = known.setdefault(Pair(made[0].prompt_id, first, second), {})
        if any(before.get(name, value) != value for name, value in expected.items()):
            raise InputError(f"{file.name}, line {line}: contradicts an earlier row about the same pair")
        before |= expected
    return [Known(pair, expected) for pair, expected in known.items()]


def _uncertain(store: Store, written: str) -> set[frozenset[str]]:
    """Return the pairs with different answers on a dimension."""
    version = store.find(written)
    with duckdb.connect() as connection:
        for table in ("pairs", "judgments"):
            view_parquet(connection, table, sorted((version.folder / table).glob("*.parquet")))
        return {frozenset(row) for row in connection.execute(query("people/uncertain_pairs")).fetchall()}


def scored_material(study: Study, spec: str, store: Store) -> TrialMaterial:
    """Return the prompts of a version, grouped as its scores are, and the clips of the chosen systems."""
    clips = scored_clips(store.find(spec), store, study.systems, study.finalists)
    names = {f"{one.system}/{one.prompt_id}": one for one in clips}
    return TrialMaterial(
        prompts={one.prompt_id: MusicPrompt(one.prompt_id, one.text, None, None, spec, 0) for one in clips},
        generations={
            name: ListedGeneration(name, one.prompt_id, one.system, str(one.path), spec, 0)
            for name, one in names.items()
        },
        digests={name: one.clip_sha256 for name, one in names.items()},
        groups={one.prompt_id: one.group for one in clips},
        uncertain=(),
        known=(),
    )
