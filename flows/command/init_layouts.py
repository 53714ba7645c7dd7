"""Configs for files in a layout that Earmark reads: the one whose reader takes most of a file's first rows."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.config import parse_config
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.registry import load
from earmark.tasks.build.registry import find_corpus
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.score_questions.forum.lines import first_objects

LOOKED_AT = 500  # rows
LEAST = 0.5  # share of them that a reader must take

TRACKS = """
[source]
name = {name}
format = {format}   # the layout that takes most of its first rows
tracks = {file}
# audio_root = "audio"   # where the audio lies, if not beside the list
# tag_map = "tag_map.json"   # synonyms of tags
"""
TEMPLATES = {
    "captions": (
        "earmark.tasks.importers.tracks:TRACK_LAYOUTS",
        TRACKS
        + """
[[pipelines]]
name = "direct"
[pipelines.listen]
annotator = "builtin:music-caption-1"   # for a trial; a model is "openai:NAME" with base_url, or "gemini:NAME"
hears_s = 30.0
""",
    ),
    "instrumentals": (
        "earmark.tasks.importers.tracks:TRACK_LAYOUTS",
        TRACKS
        + """
[separator]
model = "centre-removal"   # for a trial: needs no model; `earmark schema instrumentals` names others

[output]
codec = "flac"   # flac | wav | mp3
""",
    ),
    "human-preferences": (
        "earmark.tasks.importers.preferences:VOTE_LAYOUTS",
        """
[[sources]]
name = {name}
format = {format}   # the layout that takes most of its first rows
root = {folder}
files = [{base}]
# audio_root = "clips"   # where the clips lie, if not below root
# clips = "elsewhere"   # if they are not at hand

[split]
test = 0   # samples to draw into the split test
""",
    ),
    "instruction-rubrics": (
        "earmark.tasks.importers.caption_sets:CAPTION_LAYOUTS",
        """
[[sources]]
name = {name}
subset = {subset}   # what it fills; several sources may share one
domain = {domain}   # speech | sound | music | mixed: not told by the file, check it
format = {format}   # the layout that takes most of its first rows
captions = {file}
# audio_root = "audio"   # where the clips lie, if not beside the list
language = {language}   # of the captions: en | zh

[judge]   # hears the clips
annotator = "builtin:rubric-judge-1"   # for a trial; a model is "openai:NAME" with base_url, or "gemini:NAME"

[writer]   # takes instructions apart, labels, translates
annotator = "builtin:rubric-writer-1"   # for a trial

[disjoint]
fingerprint = 0   # 0.9 compares recordings too, and needs Chromaprint
""",
    ),
    "music-prompts": (
        ("mtg-jamendo",),
        """
tracks = {file}
# synonyms = "tag_map.json"   # synonyms of tags

# [[captions]]   # for how often captions mention a tag, and for examples
# name = "direct"
# file = "captions.json"

[pool]
popularity = 100   # fewest tracks of a tag, as in the paper
mentions = 0   # fewest captions that mention it; the paper has 10, with captions

[synthesis]
annotator = "builtin:music-prompt-1"   # for a trial; a model is "openai:NAME" with base_url, or "gemini:NAME"
""",
    ),
    "pseudo-preferences": (
        ("generations",),
        """
prompts = {beside}   # the file whose name is most alike, check it
generations = {file}

[judge]
annotator = "builtin:music-pair-2"   # for a trial; a model is "openai:NAME" with base_url, or "gemini:NAME"
""",
    ),
    "score-questions": (
        ("reddit",),
        """
[source]
name = {name}
submissions = [{file}]
comments = [{beside}]   # the file whose name is most alike, check it
subreddits = {forums}   # the most frequent of its first rows, check it; without any, all

# [images]
# folder = "images"   # by submission; without it, they are downloaded

[questions]
wrong = "comments"   # `builtin:` writes poor wrong options; left out: a model writes them, as in the paper

[writer]
annotator = "builtin:score-writer-1"   # for a trial; a model is "openai:NAME" with base_url, or "gemini:NAME"

[judge]
annotator = "builtin:score-judge-1"   # for a trial

[labeller]
annotator = "builtin:score-labeller-1"   # for a trial

[reader]   # which comments contradict the right option
annotator = "builtin:score-reader-1"   # for a trial
""",
    ),
}
"""By corpus: the registry of its layouts, or their names; and the config for a file in one of them."""

BESIDE = {
    "pseudo-preferences": ("prompts", re.compile(r"prompt", re.IGNORECASE), "with 'prompt' in its name"),
    "score-questions": (
        "comments",
        re.compile(r"^RC|comment", re.IGNORECASE),
        "that begins with RC or has 'comment' in its name",
    ),
}
"""By corpus: the option for a second file, and how that is found beside the first, by its name; the same in words."""

ANY_TABLE = ("table", "votes")  # layouts of no owner's: what they miss is what a lab has to change
DOMAINS = {"audiocaps": "sound", "clotho": "sound", "instruct-tts": "speech"}


class Fit(NamedTuple):
    """How a layout's reader takes a file."""

    layout: str
    rows: int  # that it took
    refused: int  # rejects
    fault: str  # the first of them, in words
    text: str  # the config

    @property
    def share(self) -> float:
        """Of the rows that were looked at, those that it took."""
        return self.rows / max(1, self.rows + self.refused)


def guess_config(corpus: str, file: Path, config: Path, name: str) -> Fit:
    """The layout of a file, and a config for it.

    Raises:
        InputError: no layout takes at least half of its first rows, a second file is needed and does not lie beside, or
            the corpus is another package's.
    """
    if corpus not in TEMPLATES:
        raise InputError(
            f"init {corpus}: no layouts known for this corpus; `earmark schema {corpus}` says what its config may hold"
        )
    registry = TEMPLATES[corpus][0]
    layouts = [*load(registry).entries] if isinstance(registry, str) else [*registry]
    fits = [_fit(corpus, layout, file, config, name) for layout in layouts]
    best = max(fits, key=lambda fit: (fit.share, fit.rows))
    if best.share < LEAST:
        plain = next((fit for fit in fits if fit.layout in ANY_TABLE), best)
        raise InputError(
            f"{file.name}: expected rows in one of the layouts {', '.join(layouts)}; none takes half of its first "
            f"{LOOKED_AT} rows. As {plain.layout}: {plain.fault or 'no row'}. `earmark schema {corpus}` says what a "
            "config may hold"
        )
    return best


def _fit(corpus: str, layout: str, file: Path, config: Path, name: str) -> Fit:
    """How a layout takes the file."""
    text = _text(corpus, layout, file, config, name)
    known = find_corpus(corpus)
    assert known.peeks is not None
    rows, refused, fault = 0, 0, ""
    try:
        build = parse_config(known.config, tomllib.loads(text), config.absolute())
        peeks = [*load(known.peeks)(build)]
        peek = next((one for one in peeks if file.resolve() in map(Path.resolve, one.lists)), peeks[0])
        for row in islice(peek.read(), LOOKED_AT):
            if isinstance(row, Reject):
                refused, fault = refused + 1, fault or f"line {row.line}: {row.detail}"
            elif not isinstance(row, Note):
                rows += 1
    except EarmarkError as error:  # this layout cannot be the file's
        return Fit(layout, 0, 0, str(error), text)
    return Fit(layout, rows, refused, fault, text)


def _beside(corpus: str, file: Path) -> Path:
    """The second file that a config needs: of those beside the first whose names say what they hold, the one whose name
    is most like the first's.

    Raises:
        InputError: there is none.
    """
    option, named, words = BESIDE[corpus]
    names = [
        path.name for path in sorted(file.absolute().parent.iterdir()) if path.is_file() and path != file.absolute()
    ]
    alike = get_close_matches(file.name, filter(named.search, names), n=1, cutoff=0.0)
    if not alike:
        raise InputError(
            f"no file of {option} in {file.absolute().parent}; expected one {words}; "
            f"`earmark schema {corpus}` says what a config may hold"
        )
    return file.absolute().parent / alike[0]


def _forums(file: Path) -> list[str]:
    """The subreddit that most of the first submissions are from; none if they name none."""
    rows = islice(first_objects(file, file.name, "submissions"), LOOKED_AT)
    names = Counter(str(row["subreddit"]) for row in rows if not isinstance(row, Reject) and row.get("subreddit"))
    return [name for name, _ in names.most_common(1)]


def _text(corpus: str, layout: str, file: Path, config: Path, name: str) -> str:
    with file.open("rb") as opened:
        beginning = opened.read(1 << 16).decode("utf-8", "replace")
    chinese = sum("\u4e00" <= letter <= "\u9fff" for letter in beginning)
    domain = DOMAINS.get(layout, "music")
    folder = config.absolute().parent
    values = {
        "name": name,
        "format": layout,
        "file": os.path.relpath(file, folder),
        "folder": os.path.relpath(file.absolute().parent, folder),
        "base": file.name,
        "beside": os.path.relpath(_beside(corpus, file), folder) if corpus in BESIDE else "",
        "forums": _forums(file) if corpus == "score-questions" else [],
        "domain": domain,
        "subset": f"{domain}-real",
        "language": "zh" if chinese > len(beginning) / 20 else "en",
    }
    cells = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    head = (
        f"# Guessed by `earmark init` from the first rows of a file: check every line.\ncorpus = {json.dumps(corpus)}\n"
    )
    return head + TEMPLATES[corpus][1].format(**cells)
