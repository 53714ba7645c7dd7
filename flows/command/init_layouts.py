"""Propose configs for files in known layouts: choose the layout whose reader accepts most of the first rows."""

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from earmark.flows.command.init_ratings import Line, Proposal, of_votes
from earmark.flows.command.running import demo_config
from earmark.schemas.corpus import Beside, Corpus, Start
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.pseudo_preferences import CORPUS
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import load
from earmark.schemas.toml import parse_config
from earmark.schemas.unseen import printable
from earmark.tasks.importers.sniffing import AUDIO, Sample, ending, read_name, read_sample, require_names
from earmark.tasks.importers.vote_guessing import guess_votes
from earmark.tasks.pipeline.inputs import rows_of
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.score_questions.forum.lines import first_objects

LOOKED_AT = 500  # rows
LEAST = 0.5  # share of them a reader must accept

ANY_TABLE = ("table", "votes")  # generic layouts: their faults are a lab's columns to change
CLIP = re.compile(r"""([^"',;\t\r\n|]+\.(?:wav|flac|mp3|ogg|opus|m4a))\b""", re.IGNORECASE)
DOMAINS = {"audiocaps": "sound", "clotho": "sound", "instruct-tts": "speech", "wavcaps": "sound"}

ENDINGS = {"wavcaps": "json"}  # of layouts whose columns other tables have too


class LayoutFit(NamedTuple):
    """The result of reading a file by a layout."""

    layout: str
    rows: int  # accepted rows
    refused: int  # rejects
    fault: str  # the first of them, in words
    text: str  # the config

    @property
    def share(self) -> float:
        """Return the accepted share of the rows read."""
        return self.rows / max(1, self.rows + self.refused)

    @property
    def proposal(self) -> Proposal:
        """Return the config, and remarks on it."""
        said = [f"looked at {self.rows + self.refused:,} rows: {self.rows:,} are in the layout {self.layout}"]
        said += [f"not in it: {self.refused:,}, such as {self.fault}"] if self.refused else []
        facts = {"format": self.layout, "rows": self.rows, "refused": self.refused}
        return Proposal(self.text, facts, [*said, "check who is asked, and every line with a comment"])


def propose_layout(corpus: str, file: Path, config: Path, name: str) -> Proposal:
    """Propose a config for a file in a layout of a corpus, or for comparisons in columns of any names."""
    is_table = corpus == "human-preferences"
    try:
        fit = guess_config(corpus, file, config, name)
    except InputError:
        require_names(file)
        votes = guess_votes(file) if is_table else None
        if votes is None or (file.suffix.lower() == ".json" and any("." in name for name in votes.columns.values())):
            raise  # documents of a tool hold answers that do not count
    else:  # names of our own stand beside others
        if fit.layout == "votes":  # other layouts read names beside bytes
            require_names(file)
        votes = guess_votes(file) if is_table and fit.layout == "votes" else None
        if votes is None:
            return fit.proposal
    return of_votes(votes, file, config, name, file.absolute().parent if _holds_clips(file) else None)


def guess_config(corpus: str, file: Path, config: Path, name: str) -> LayoutFit:
    """Choose the layout of a file, and write a config for it."""
    known = find_corpus(corpus)
    if known.start is None:
        raise InputError(
            f"init {corpus}: no layouts known for this corpus; its config: `earmark init {corpus} --schema`"
        )
    registry = known.start.layouts
    layouts = [*load(registry).entries] if isinstance(registry, str) else [*registry]
    layouts = [name for name in layouts if ENDINGS.get(name, ending(file)) == ending(file)]
    fits = [_fit(known, known.start, layout, file, config, name) for layout in layouts]
    best = max(fits, key=lambda fit: (fit.share, fit.rows))
    if best.share < LEAST:
        plain = next((fit for fit in fits if fit.layout in ANY_TABLE), best)
        plain = next((fit for fit in fits if ": expected UTF-8, " in fit.fault), plain)
        raise InputError(
            f"{file.name}: expected rows in one of the layouts {', '.join(layouts)}; none takes half of its first "
            f"{LOOKED_AT} rows. As {plain.layout}: {plain.fault or 'no row'}. "
            f"Its config: `earmark init {corpus} --schema`"
        )
    return best


def _fit(known: Corpus, start: Start, layout: str, file: Path, config: Path, name: str) -> LayoutFit:
    text = _text(known.name, start, layout, file, config, name)
    rows, refused, fault = 0, 0, ""
    try:
        build = parse_config(known.config, tomllib.loads(text), config.absolute())
        for row in islice(rows_of(known, build, file), LOOKED_AT):
            if isinstance(row, Reject):
                refused, fault = refused + 1, fault or f"line {row.line}: {row.detail}"
            elif not isinstance(row, Note):
                rows += 1
    except EarmarkError as error:  # the file is not in this layout
        return LayoutFit(layout, 0, 0, str(error), text)
    return LayoutFit(layout, rows, refused, fault, text)


def _beside(corpus: str, beside: Beside, file: Path) -> Path:
    """Find a config's second file: among files beside the first with fitting names, the most similar name."""
    named = re.compile(beside.pattern, re.IGNORECASE)
    names = [
        path.name for path in sorted(file.absolute().parent.iterdir()) if path.is_file() and path != file.absolute()
    ]
    found = ""
    alike = get_close_matches(file.name, filter(named.search, names), n=1, cutoff=0.0)
    if not alike:
        with suppress(InputError):  # a list whose columns nobody can tell
            found = f", and {file.name} has {', '.join(map(repr, read_sample(file).names))}"
        raise InputError(
            f"no file of {beside.option} in {file.absolute().parent}; expected one {beside.words}; --from names "
            f"{beside.first}{found}; `earmark init {corpus} --schema` says what a config may hold"
        )
    return file.absolute().parent / alike[0]


def _holds_clips(file: Path) -> bool:
    """Return whether a clip named in a table's first rows lies below its folder; a name may be too long for a path."""
    with file.open("rb") as opened:
        named = CLIP.finditer(opened.read(1 << 16).decode("utf-8", "replace"))
    return any(os.path.isfile(file.parent / clip[1]) for clip in islice(named, LOOKED_AT))  # noqa: PTH113


def _forums(file: Path) -> list[str]:
    """Return the most frequent subreddit of the first submissions; none if they name none."""
    rows = islice(first_objects(file, file.name, "submissions"), LOOKED_AT)
    names = Counter(str(row["subreddit"]) for row in rows if not isinstance(row, Reject) and row.get("subreddit"))
    return [name for name, _ in names.most_common(1)]


def _text(corpus: str, start: Start, layout: str, file: Path, config: Path, name: str) -> str:
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
        "beside": os.path.relpath(_beside(corpus, start.beside, file), folder) if start.beside else "",
        "forums": _forums(file) if "{forums}" in start.text else [],
        "audio": "index" if _holds_clips(file) else "none",
        "domain": domain,
        "subset": f"{domain}-real",
        "language": "zh" if chinese > len(beginning) / 20 else "en",
    }
    cells = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    return document("the first rows of a file", corpus, start.text.format(**cells), start.demo)


def document(of: str, corpus: str, text: str, demo: tuple[str, ...]) -> str:
    """Return a config: its head, the part of the file, and tables of the corpus's demo; of a list, the first."""
    tables: dict[str, str] = {}
    for block in re.split(r"(?m)^(?=\[)", demo_config(corpus).read_text("utf-8"))[1:]:
        tables.setdefault(block.partition("]")[0].strip("["), block.partition("\n\n")[0].strip())
    trial = '# As in the demo, for a trial; a model is also "gemini:NAME", or one that [models.NAME] declares.'
    head = f"# Guessed by `earmark init` from {of}: check every line.\ncorpus = {json.dumps(corpus)}\n"
    return head + "\n".join([text, *([trial] if demo else []), *(f"{tables[name]}\n" for name in demo)])


TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
TEXTS = frozenset({"text", "prompt", "caption", "description", "instruction"})
FEW_PROMPTS = 100  # fewer get a larger share of the test split, for it to hold several
LEAST_NAMED = 0.5  # share of the clips with a known prompt


def propose_folder(folder: Path, config: Path) -> Proposal:
    """Propose a config for the clips of systems, a folder each, named by their prompts."""
    clips = sorted(place for place in folder.glob("*/*") if place.suffix.lower() in AUDIO and place.is_file())
    systems = Counter(place.parent.name for place in clips)
    if len(systems) < 2:
        raise InputError(
            f"--from {folder}: expected two folders or more of sound files, one a system (sysA/0001.wav), found "
            f"{len(systems)}"
        )
    ending = Counter(place.suffix for place in clips).most_common(1)[0][0]
    stems = {place.stem for place in clips}
    beside = [place for place in sorted(folder.iterdir()) if place.suffix.lower() in TABLES and place.is_file()]
    fits = [(fit, place) for place in beside if (fit := _prompts(place, stems))]
    if not fits:
        names = ", ".join(place.name for place in beside) or "no table"
        raise InputError(
            f"--from {folder}: expected a table of prompts whose ids name the clips (such as '{shown(min(stems))}') "
            f"and a column of texts, found {names}"
        )
    (columns, known), table = max(fits, key=lambda one: one[0][1])
    here = config.absolute().parent
    pattern = Path(os.path.relpath(folder, here), f"{{model}}/{{prompt_id}}{ending}")
    lines = [
        Line("prompts", os.path.relpath(table, here)),
        Line("generations", str(pattern), "the files themselves"),
    ]
    renamed = {ours: theirs for ours, theirs in columns.items() if ours != theirs}
    lines += [Line("prompt_columns", renamed)] if renamed else []
    if len(stems) < FEW_PROMPTS:
        shares = {"train": 0.7, "test": 0.3}
        lines.append(Line("shares", shares, f"{len(stems)} prompts: for the test split to hold some"))
    text = document("a folder", CORPUS.name, "".join(f"\n{line.text()}" for line in lines) + "\n", ("judge",))
    other = len(clips) - sum(place.suffix == ending for place in clips)
    named = ", ".join(f"{ours} = {theirs}" for ours, theirs in columns.items())
    counted = ", ".join(f"{name} ({n:,})" for name, n in sorted(systems.items()))
    said = [
        f"{len(clips):,} clips of {len(systems)} systems: {counted}",
        f"prompts: {table.name}, {named}; they name {known:,} of {len(stems):,} clips",
    ]
    said += [f"left out: {other:,} files that do not end in {ending}"] if other else []
    facts = {"clips": len(clips), "systems": dict(systems), "prompts": table.name, "columns": columns}
    return Proposal(text, facts, [printable(line) for line in said])


def _prompts(table: Path, stems: set[str]) -> tuple[Mapping[str, str], int] | None:
    """Find a prompt table's columns of ids and texts, and count clips named by its ids; None for other tables."""
    try:
        sample: Sample = read_sample(table)
    except InputError:  # an unrelated file
        return None
    cells = {name: [row[at].strip() for row in sample.rows] for at, name in enumerate(sample.names) if name}
    known = {name: len(stems & {*values}) for name, values in cells.items()}
    ids = max(known, key=lambda name: known[name], default=None)
    if ids is None or known[ids] < LEAST_NAMED * len(stems):
        return None
    texts = [
        name for name in cells if name != ids and {*read_name(name).words} & TEXTS and "id" not in read_name(name).words
    ]
    if len(texts) != 1:
        texts = [name for name in texts if name == "text"]
    return ({"prompt_id": ids, "text": texts[0]}, known[ids]) if texts else None
