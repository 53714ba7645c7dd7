"""Word the requests of `music-prompts`: to a judge about tags on tracks, and to a writer for prompts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pyarrow.parquet as pq

from earmark.schemas.music_prompts import CATEGORIES, MusicPrompts
from earmark.schemas.questions import Audio, AudioForm, YesNo
from earmark.schemas.tracks import Tag
from earmark.tasks.music_prompts.checks import Checked, check_prompt
from earmark.tasks.pipeline.ask import Ask, Fault, Row, Values
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.versions import Version
from earmark.tasks.text.tag_words import Lexicon, forms_of, is_reviewed, written_forms

LONGEST = 400  # characters of a prompt; the paper's have one or two sentences
CONCEPTS = {"genre": "concept-genre", "instrument": "concept-instrument", "mood/theme": "concept-mood-theme"}
TAGS = {"genre": "tag-genre", "instrument": "tag-instrument", "mood/theme": "tag-mood-theme"}
STYLES = {"strict": "music-prompt-strict", "improvised": "music-prompt-improvised"}


def concept_prompt(tag: Tag) -> str:
    """Return the name of the prompt about a tag: words of the reviewed list stand plainly in it, others in a fence."""
    return (TAGS if is_reviewed(tag) else CONCEPTS)[tag.category]


def concept_prompts(version: Version) -> dict[str, dict[str, str]]:
    """Return the prompts by which a version's tags were verified, by prompt and concept.

    Versions of release 1.0.0 were verified with every tag in a fence. Words that are no form of the tag, as
    a version of others may hold, are asked about in one too.
    """
    asked = {name.partition("@")[0] for name in version.manifest.prompts}
    fenced = not asked.isdisjoint(CONCEPTS.values()) and asked.isdisjoint(TAGS.values())
    columns = {category.replace("/", "_"): category for category in CATEGORIES}
    drawn = {triplet_id: tags for triplet_id, *tags in _concepts(version, "triplets", "triplet_id", *columns)}
    prompts: dict[str, dict[str, str]] = {}
    for prompt_id, *words in _concepts(version, "prompts", "prompt_id", *columns):
        tags = map(Tag, columns.values(), drawn.get(prompt_id, words))
        names = {
            column: CONCEPTS[tag.category] if fenced or word not in forms_of(tag) else concept_prompt(tag)
            for column, tag, word in zip(columns, tags, words, strict=True)
        }
        if prompts.setdefault(prompt_id, names) != names:  # an id twice
            prompts[prompt_id] = {column: CONCEPTS[category] for column, category in columns.items()}
    return prompts


def _concepts(version: Version, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
    return tuples_of(pq.read_table(version.files(table), columns=[*names]), *names)


class TagQuestion(TypedDict):
    """A row of `questions.sql`, with hash and length of its file, or the file's fault."""

    category: str
    tag: str
    written: str
    file: str
    clip_sha256: NotRequired[str]
    duration_s: NotRequired[float]
    reason: NotRequired[str]
    detail: NotRequired[str]


class DrawnTriplet(TypedDict):
    """A row of `round.sql`; of the columns of its tags, these are as a sentence has them."""

    triplet_id: str
    stratum: str
    genre_written: str
    instrument_written: str
    mood_written: str
    shots: list[str]
    added: list[str]
    unnatural: list[str]
    lexicon: Any  # its file, then the word forms
    references: Any  # of texts to leave out, if there are any


LONGEST_S = 30.0  # what the judge hears of a track, from its start


def concept_values(config: MusicPrompts, row: TagQuestion) -> Values:
    """Show a tag and the track that may have it."""
    judge = config.verification
    assert judge is not None
    form = AudioForm(longest_s=LONGEST_S)
    path = str(config.path(judge.place[0]) / row["file"])
    clip = Audio(row["clip_sha256"], path, duration_s=row["duration_s"], form=form)
    facts = {"category": row["category"], "concept": row["written"]}
    return Values({"clip": clip, "concept": row["written"]}, facts, YesNo())


def writing_values(config: MusicPrompts, triplet: DrawnTriplet) -> Values:
    """Show the tags of a triplet, and examples."""
    tags = {
        "genre": triplet["genre_written"],
        "instrument": triplet["instrument_written"],
        "mood": triplet["mood_written"],
    }
    return Values({**tags, "shots": triplet["shots"]}, {**tags, "added": triplet["added"]})


def style_of(triplet: DrawnTriplet) -> str:
    """Return the style of a triplet's prompt: `strict` or `improvised`."""
    return triplet["stratum"].partition("_")[0]


def text_of(value: Mapping[str, str]) -> str:
    """Return the prompt in an answer, on a single line."""
    return " ".join(value["prompt"].split())


def taxonomy(lexicon: Path) -> Lexicon:
    """Return the forms of every tag in the track list and in the reviewed list."""
    rows = tuples_of(pq.read_table(lexicon, columns=["category", "tag"]), "category", "tag")
    return Lexicon([*(Tag(category, tag) for category, tag in rows), *written_forms()])


def checked_prompt(config: MusicPrompts, triplet: DrawnTriplet, value: Any) -> Checked:
    """Check a written prompt. The triplet's row holds the `lexicon` of the whole taxonomy."""
    row: Row = triplet
    tags = [Tag(category, row[category.replace("/", "_")]) for category in CATEGORIES]
    return check_prompt(text_of(value), tags, style_of(triplet), triplet["lexicon"], LONGEST)


def prompt_fault(config: MusicPrompts, triplet: DrawnTriplet, value: Any) -> Fault | None:
    """Return the fault of a written prompt, and its words: of its tags, or that it is one of the example captions."""
    text, fault = text_of(value), checked_prompt(config, triplet, value).fault
    if fault is None and text.casefold() in (" ".join(shot.split()).casefold() for shot in triplet["shots"]):
        fault = Fault("repeats_example", "expected words of its own, found an example caption")
    return fault and Fault(fault.reason, f"{fault.detail}: {text}")


VERIFY = Ask(
    "verify",
    annotator="judge",
    prompt=lambda config, row: concept_prompt(Tag(row["category"], row["tag"])),
    kinds=lambda config: [
        {"category": tag.category, "tag": tag.name} for tag in (*(Tag(c, "") for c in CATEGORIES), *written_forms())
    ],
    values=concept_values,
    about="tags on tracks",
)
WRITE = Ask(
    "write",
    annotator="writer",
    prompt=lambda config, triplet: STYLES[style_of(triplet)],
    kinds=lambda config: [{"stratum": style} for style in STYLES],
    values=writing_values,
    check=prompt_fault,
    about="prompts",
)
