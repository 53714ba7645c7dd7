"""Write a page with players for each system's clip of the same prompt: `earmark eval rank --listen`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.tasks.evaluation.submission import CLIPS, generation_of, prompts_of
from earmark.tasks.pipeline.report import HEARD_S, read_sounds
from earmark.tasks.store.figures import AudioPlayer, Browser, Page, Row, Section
from earmark.tasks.store.files import write_text
from earmark.tasks.store.report import render_report
from earmark.tasks.store.versions import Store, Version

MOST_BYTES = 60_000_000  # sound in the page: 100 prompts of eight systems take 40 MB


def write_page(
    version: Version, corpus: Corpus, store: Store, records: Sequence[tuple[Mapping[str, Any], Path]], path: Path
) -> int:
    """Write the page, with sound, texts and script in one file; replace an earlier one.

    Args:
        records: the systems' facts and folders, from `leaderboard.scored`.

    Returns:
        Number of clips without a player: moved or changed since their scoring, or beyond the page's limit.
    """
    generation = generation_of(corpus)
    made = {facts["system"]: {row["id"]: row for row in pq.read_table(folder / CLIPS).to_pylist()}
            for facts, folder in records}  # fmt: skip
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


def _label(system: str, clip: Mapping[str, Any]) -> str:
    measured = {"CLAP": clip["clap"], "CCS": clip["coverage"]}
    figures = [f"{name} {value:.2f}" for name, value in measured.items() if value is not None]
    return ", ".join([system, *figures, *clip["faults"]])
