"""Lay out the clips of scored systems: a page with players (`earmark eval rank --listen`), and lists for studies."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.reasons import AudioFault
from earmark.schemas.results import ScoreFacts
from earmark.tasks.audio.probe import QUIET_DB, Probe, probe
from earmark.tasks.evaluation.leaderboard import EVERY, ranked_group, ranking, scored
from earmark.tasks.evaluation.scorers import ScoredRow
from earmark.tasks.evaluation.submission import CLIPS, generation_of, prompts_of
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.pipeline.report import HEARD_S, read_sounds
from earmark.tasks.store.figures import AudioPlayer, Browser, Page, Row, Section
from earmark.tasks.store.files import write_text
from earmark.tasks.store.report import render_report
from earmark.tasks.store.versions import Store, Version

MOST_BYTES = 60_000_000  # sound in the page: 100 prompts of eight systems take 40 MB


def write_page(
    version: Version, corpus: Corpus, store: Store, records: Sequence[tuple[ScoreFacts, Path]], path: Path
) -> int:
    """Write the page, with sound, texts and script in one file; replace an earlier one.

    Args:
        records: the systems' facts and folders, from `leaderboard.scored`.

    Returns:
        Number of clips without a player: moved or changed since their scoring, or beyond the page's limit.
    """
    generation = generation_of(corpus)
    made = {facts["system"]: {row["id"]: row for row in _clips(folder)} for facts, folder in records}
    rows = []
    for prompt in prompts_of(version, generation):
        key = prompt[generation.key]
        clips = [
            AudioPlayer(_label(name, clips[key]), clips[key]["clip_sha256"])
            for name, clips in made.items()
            if key in clips
        ]
        groups = {name: str(prompt[name]) for name in generation.groups if prompt[name] is not None}
        rows.append(Row(key, groups, texts={"prompt": prompt[generation.text]}, clips=tuple(clips)))
    played = [clip for row in rows for clip in row.clips]
    sounds = read_sounds(store, played, MOST_BYTES)
    page = Page(
        (Section("Prompts", (Browser("the same prompt, each system", tuple(rows), len(rows)),)),),
        sounds,
        f"Of each clip the page holds its first {HEARD_S:.0f} seconds in mono.",
    )
    story = replace(
        corpus.story,
        title=f"{corpus.story.title}: {len(made)} systems",
        summary="What each system made of the same prompt, beside what was measured of the clip.",
    )
    manifest = version.manifest.model_copy(update={"steps": (), "rows": {"prompts": {"all": len(rows)}}})
    write_text(path.absolute(), render_report(manifest, story, page))
    return sum(clip.sha256 not in sounds for clip in played)


def _clips(folder: Path) -> list[ScoredRow]:
    rows: list[ScoredRow] = pq.read_table(folder / CLIPS).to_pylist()
    return rows


def _label(system: str, clip: ScoredRow) -> str:
    measured = {"CLAP": clip["clap"], "CCS": clip["coverage"]}
    figures = [f"{name} {value:.2f}" for name, value in measured.items() if value is not None]
    return ", ".join([system, *figures, *clip["faults"]])


class ScoredClip(NamedTuple):
    """A scored system's clip of a prompt."""

    system: str
    prompt_id: str
    text: str  # the prompt
    group: str  # its groups, joined by spaces
    clip_sha256: str
    path: Path


def scored_clips(version: Version, store: Store, systems: Sequence[str], finalists: int | None) -> list[ScoredClip]:
    """Return the clips of the named systems and of so many finalists, or of all scored systems if neither is given.

    Raises:
        InputError: a system was not scored, systems cannot be compared, or a clip was moved or changed.
    """
    corpus = find_corpus(version.corpus)
    generation = generation_of(corpus)
    records = scored(version, store, (not finalists and systems) or [EVERY])
    if finalists:
        ranks = ranking([facts for facts, _ in records], finalists, ranked_group(corpus, records[0][0]))
        chosen = {*systems, *(one["system"] for one in ranks if one["finalist"])}
        if unknown := sorted(chosen - {facts["system"] for facts, _ in records}):
            raise InputError(f"{unknown[0]}: no record of this system on {version.corpus}@{version.name}")
        records = [(facts, folder) for facts, folder in records if facts["system"] in chosen]
    held = [(facts["system"], clip["id"], clip["clip_sha256"]) for facts, folder in records for clip in _clips(folder)]
    index = media_index(store)
    found = index.places({sha256 for *_, sha256 in held}).values()
    paths = [path for places in found for path in places if path.is_file()]
    probes = zip(paths, index.look(paths), strict=True)
    known = {probe.clip_sha256: path for path, probe in probes if isinstance(probe, Probe)}
    if moved := [one for one in held if one[2] not in known]:
        raise InputError(
            f"{moved[0][0]}: {len(moved):,} clips were moved or changed since their scoring: score it again"
        )
    rows = {row[generation.key]: row for row in prompts_of(version, generation)}
    groups = {key: " ".join(str(row[name]) for name in generation.groups) for key, row in rows.items()}
    return [
        ScoredClip(system, key, rows[key][generation.text], groups[key], sha256, known[sha256])
        for system, key, sha256 in held
    ]


def playable(paths: Sequence[Path]) -> list[str | AudioFault]:
    """Return the SHA-256 of each clip, or its fault if it cannot be decoded or is silent."""
    silent = AudioFault("audio_silent", f"expected a peak above {QUIET_DB:g} dBFS, found a silent clip")
    with ThreadPoolExecutor() as pool:
        return [
            clip if isinstance(clip, AudioFault) else clip.clip_sha256 if clip.peak_dbfs > QUIET_DB else silent
            for clip in pool.map(probe, paths)
        ]
