"""`music-prompts`: the requests, to a judge about tags on tracks, and to a writer for prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from earmark.schemas.music_prompts import CATEGORIES, MusicPrompts
from earmark.tasks.annotation.prompts import prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm, YesNo
from earmark.tasks.build.ask import Ask, Posed, Row, pose
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.importers.jamendo import Tag
from earmark.tasks.music_prompts.checks import Checked, check_prompt
from earmark.tasks.text.tag_words import Lexicon, is_reviewed, written_forms

CONCEPTS = {"genre": "concept-genre", "instrument": "concept-instrument", "mood/theme": "concept-mood-theme"}
TAGS = {"genre": "tag-genre", "instrument": "tag-instrument", "mood/theme": "tag-mood-theme"}
STYLES = {"strict": "music-prompt-strict", "improvised": "music-prompt-improvised"}


def prompt_digests(config: MusicPrompts) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    verifies = [names[category] for names in (CONCEPTS, TAGS) for category in CATEGORIES if config.verification]
    names = [*STYLES.values(), *verifies]
    return {prompt.id: prompt.sha256 for prompt in map(prompt_named, names)}


def concept_request(config: MusicPrompts, row: Row) -> Posed:
    """Whether a tag can be heard on a track: a row of `questions.sql`, with hash and length of its file.

    The words of the reviewed list stand plainly in the question; other lists' own words come from outside, in a fence.
    """
    judge = config.verification
    assert judge is not None
    form = AudioForm(sample_rate_hz=judge.sample_rate_hz, longest_s=judge.longest_s)
    path = str(config.path(judge.audio) / row["file"])
    clip = Audio(row["clip_sha256"], path, duration_s=row["duration_s"], form=form)
    facts = {"category": row["category"], "concept": row["written"]}
    names = TAGS if is_reviewed(Tag(row["category"], row["tag"])) else CONCEPTS
    prompt = prompt_named(names[row["category"]])
    return pose(judge, prompt, facts, YesNo(), clip=clip, concept=row["written"])


def writing_request(config: MusicPrompts, triplet: Row) -> Posed:
    """A prompt for a triplet: a row of `round.sql`."""
    tags = {
        "genre": triplet["genre_written"],
        "instrument": triplet["instrument_written"],
        "mood": triplet["mood_written"],
    }
    facts, prompt = {**tags, "added": triplet["added"]}, prompt_named(STYLES[style_of(triplet)])
    return pose(config.synthesis, prompt, facts, **tags, shots=triplet["shots"])


def style_of(triplet: Row) -> str:
    """In which style a triplet's prompt is written: `strict` or `improvised`."""
    return str(triplet["stratum"].partition("_")[0])


def text_of(value: Any) -> str:
    """The prompt in an answer, on one line."""
    return " ".join(value["prompt"].split())


def taxonomy(lexicon: Path) -> Lexicon:
    """The forms of every tag that the track list has, and of those that the reviewed list knows."""
    rows = pq.read_table(lexicon, columns=["category", "tag"]).to_pylist()
    return Lexicon([*(Tag(row["category"], row["tag"]) for row in rows), *written_forms()])


def checked_prompt(config: MusicPrompts, triplet: Row, value: Any) -> Checked:
    """What comes of a written prompt. The triplet's row holds the `lexicon` of the whole taxonomy."""
    tags = [Tag(category, triplet[category.replace("/", "_")]) for category in CATEGORIES]
    return check_prompt(text_of(value), tags, style_of(triplet), triplet["lexicon"], config.synthesis.longest)


def prompt_fault(config: MusicPrompts, triplet: Row, value: Any) -> Fault | None:
    """What is wrong with a written prompt, and its words."""
    fault = checked_prompt(config, triplet, value).fault
    return fault and Fault(fault.reason, f"{fault.detail}: {text_of(value)}")


VERIFY = Ask(
    "verify",
    annotator="judge",
    request=concept_request,
    imagine=lambda config, row: {"p_yes": 1.0},
    about="tags on tracks",
)
WRITE = Ask(
    "write",
    annotator="writer",
    request=writing_request,
    imagine=lambda config, triplet: {"prompt": imagined(30)},
    check=prompt_fault,
    about="prompts",
)
