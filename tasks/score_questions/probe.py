"""Probe what a model reads in scores (WildScore, section 4.4): made music with known facts, and its ABC back."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.evaluations import Examinee
from earmark.tasks.pipeline.transcribing import transcribe
from earmark.tasks.score_questions.abc_notation import (
    BadAbc,
    Faithfulness,
    compare_bars,
    loops,
    read_abc,
    signature_of,
    tune_in,
)
from earmark.tasks.score_questions.made_music import Fact, as_abc, compose, engrave, perceived, reasoned
from earmark.tasks.score_questions.option_order import LETTERS, in_order, right_places
from earmark.tasks.score_questions.released import IMAGES, OURS, TABLE, WANTED, write
from earmark.tasks.score_questions.review_files import refuse_work, write_mark
from earmark.tasks.store.folder import PREPARED, building, write_record
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, percent, wilson
from earmark.tasks.store.versions import Store

REASONING, ABC = "reasoning.csv", "abc"
WRITTEN = (TABLE, REASONING, IMAGES, ABC)  # the files and folders of a probe
RECONSTRUCTION, CAUSES = "reconstruction.json", "causes.json"
PROMPT = "score-question-abc"
ENDS = ("valid", "invalid", "loop", "no answer")
SHORT = 6  # bars up to which a piece counts as short
ANSWERS = pa.schema(
    [
        *((name, pa.string()) for name in ("image", "staves", "length", "end", "detail", "abc", "request_key")),
        *((name, pa.int64()) for name in ("known", "same", "altered", "omitted", "added", "repeated", "misfits")),
        *((name, pa.bool_()) for name in ("key_right", "meter_right")),
    ]
)


class ReadBars(TypedDict):
    """Counts of a group of pictures, and of their bars."""

    group: str
    value: str
    pictures: int
    valid: int
    known: int
    same: int
    altered: int
    omitted: int
    added: int
    repeated: int
    key_right: int
    meter_right: int
    misfits: int


class ReconstructionFacts(TypedDict):
    """`reconstruction.json`."""

    annotator: str
    prompt: str
    pictures: int
    spent_usd: float
    ends: dict[str, int]
    groups: list[ReadBars]


class ErrorCauses(TypedDict):
    """A model's wrong answers by cause."""

    model: str
    questions: int
    wrong: int
    perception: float
    reasoning: float
    unknown: int
    facts: int
    facts_right: int


class CausesFacts(TypedDict):
    """`causes.json`."""

    models: list[ErrorCauses]


def write_probe(folder: Path, images: int, seed: int, *, force: bool = False) -> dict[str, int]:
    """Write pieces as pictures with questions in WildScore's layout, and as ABC.

    `data.csv` asks what is written, `reasoning.csv` what follows from it; `abc/` holds the music.

    Returns:
        The numbers of pictures and of questions of both kinds.

    Raises:
        MissingExtraError: the extra `scores` is not installed.
        StoreError: the folder is taken, or holds files of others.
    """
    facts: dict[str, list[tuple[str, Fact]]] = {TABLE: [], REASONING: []}
    check = partial(refuse_work, written=WRITTEN)
    with building(folder.absolute(), force=force, record=PREPARED, check=check) as place:
        for name in (IMAGES, ABC):
            (place / name).mkdir()
        for number in range(images):
            piece, name, draw = compose(seed, number), f"{number:04d}", random.Random(f"{seed} {number} options")
            (place / IMAGES / f"{name}.png").write_bytes(engrave(piece)[1])
            (place / ABC / f"{name}.abc").write_text(as_abc(piece), "utf-8")
            facts[TABLE] += [(f"{name}.png", fact) for fact in perceived(piece, draw)]
            facts[REASONING] += [(f"{name}.png", fact) for fact in reasoned(piece, draw)]
        for table, kind in ((TABLE, "Perception"), (REASONING, "Reasoning")):
            rows = [*rows_of_facts(facts[table], kind, seed)]
            write(iter([pa.RecordBatch.from_pylist(rows)]), place / table)
        counts = {"images": images, "perception": len(facts[TABLE]), "reasoning": len(facts[REASONING])}
        write_mark(place, {**counts, "seed": seed})
    return counts


def rows_of_facts(facts: Sequence[tuple[str, Fact]], kind: str, seed: int) -> Iterable[dict[str, str | None]]:
    """Yield the rows of a table of facts about files, with the right letters in turn."""
    keys = [f"{Path(file).stem} {fact.name}" for file, fact in facts]
    places = right_places({key: 1 + len(fact.others) for key, (_, fact) in zip(keys, facts, strict=True)}, seed)
    for key, (file, fact) in zip(keys, facts, strict=True):
        options = in_order(key, fact.truth, fact.others, places[key], seed)
        held = dict(zip(LETTERS, options, strict=False))
        asked = (file, fact.question, json.dumps(held), LETTERS[places[key]])
        yield {
            **dict(zip(WANTED, asked, strict=True)),
            **dict.fromkeys(OURS),
            "category": kind,
            "subcategory": fact.name,
        }


def reconstruct(folder: Path, store: Store, config: Examinee, out: Path | None) -> tuple[ReconstructionFacts, Path]:
    """Ask a model for the ABC of each picture with known music, and compare bar by bar.

    Raises:
        InputError: the folder has no picture with an `.abc`, or one of these is no ABC.
        EarmarkError: no picture was answered.
    """
    known = {path.stem: path.read_text("utf-8") for path in sorted((folder / ABC).glob("*.abc"))}
    pictures = {name: folder / IMAGES / f"{name}.png" for name in known}
    pictures = {name: path for name, path in pictures.items() if path.is_file()}
    if not pictures:
        raise InputError(f"{folder}: expected {IMAGES}/NAME.png with {ABC}/NAME.abc beside, found none")
    found, spent = transcribe(store, config, PROMPT, pictures)
    rows = []
    for name, one in found.items():
        told = judged(known[name], one.text) if one.text is not None else {"end": "no answer", "detail": one.fault}
        rows.append({"image": name, "request_key": one.request_key, **_music(known[name], name), **told})
    if all(row["end"] == "no answer" for row in rows):
        raise EarmarkError(f"no picture has an answer; the first: {rows[0]['detail']}")
    facts: ReconstructionFacts = {
        "annotator": config.annotator, "prompt": PROMPT, "pictures": len(rows), "spent_usd": spent,
        "ends": dict(Counter(row["end"] for row in rows)), "groups": [*_groups(rows)],
    }  # fmt: skip
    digest = hashlib.sha256("".join(row["request_key"] for row in rows).encode()).hexdigest()[:8]
    named = config.annotator.replace("/", "-").replace(":", "-")
    place = out or store.root / "evaluations" / "abc" / f"{named}-{digest}"
    held = (ANSWERS, [tuple(row.get(name) for name in ANSWERS.names) for row in rows])
    return facts, write_record(place, RECONSTRUCTION, facts, reconstruction_page(facts).files(), answers=held)


def _music(abc: str, name: str) -> dict[str, Any]:
    try:
        tune = read_abc(abc)
    except BadAbc as bad:
        raise InputError(f"{ABC}/{name}.abc: {bad}") from None
    bars = max(map(len, tune.voices.values()))
    known = sum(map(len, tune.voices.values()))
    return {"staves": str(len(tune.voices)), "length": "short" if bars <= SHORT else "long", "known": known}


def judged(known: str, answer: str) -> dict[str, Any]:
    """Judge a model's ABC by the known music: its end, and the fate of the known bars."""
    abc = tune_in(answer)
    about: dict[str, Any] = {"abc": abc, "end": "loop" if loops(abc) else "valid"}
    ours = read_abc(known)
    try:
        theirs = read_abc(abc)
    except BadAbc as bad:
        end = "loop" if about["end"] == "loop" else "invalid"
        return {**about, "end": end, "detail": str(bad)}
    right = {"key_right": signature_of(theirs.key) == signature_of(ours.key), "meter_right": theirs.meter == ours.meter}
    return {**about, **vars(compare_bars(ours, theirs)), **right, "misfits": theirs.misfits}


def _groups(rows: Sequence[Mapping[str, Any]]) -> Iterable[ReadBars]:
    """Yield counts over all pictures, then by number of staves and by length; unread bars count as omitted."""
    values = {"all": {"all"}, **{name: {row[name] for row in rows} for name in ("staves", "length")}}
    for group, found in values.items():
        for value in sorted(found):
            own = [row for row in rows if group == "all" or row[group] == value]
            total = sum((_fate(row) for row in own), Faithfulness())
            valid = sum(row["end"] == "valid" for row in own)
            told: Any = {"group": group, "value": value, "pictures": len(own), "valid": valid, **vars(total)}
            told |= {name: sum(row.get(name) or 0 for row in own) for name in ("key_right", "meter_right", "misfits")}
            yield told


def _fate(row: Mapping[str, Any]) -> Faithfulness:
    if row.get("same") is None:
        return Faithfulness(known=row["known"], omitted=row["known"])
    return Faithfulness(*(row[name] for name in vars(Faithfulness())))


def reconstruction_page(facts: ReconstructionFacts) -> ResultPage:
    """Return the page of a reconstruction, with a summary in words (Table 8)."""
    columns = (
        "pictures", "", "number", percent("valid ABC"), percent("bars as written"), percent("altered"),
        percent("left out"), "added", "of them repeats", percent("key right"), percent("metre right"),
    )  # fmt: skip
    rows = []
    for one in facts["groups"]:
        pictures, bars = one["pictures"], one["known"]
        shares = (one["same"] / bars, one["altered"] / bars, one["omitted"] / bars)
        signs = (one["key_right"] / pictures, one["meter_right"] / pictures)
        row = (one["group"], one["value"], pictures, wilson(one["valid"], pictures), *shares)
        rows.append((*row, one["added"], one["repeated"], *signs))
    title = f"ABC reconstruction by {facts['annotator']}"
    says = "Bars are aligned by voice; a bar is as written if every pitch and length is. Unread bars count as left out."
    return ResultPage(title, (ResultTable("Known bars in the ABC", columns, tuple(rows), says),), (summary(facts),))


def summary(facts: ReconstructionFacts) -> str:
    """Say in words how a model's ABC ends."""
    ends, whole = facts["ends"], facts["groups"][0]
    told = ", ".join(f"{ends.get(end, 0)} {end}" for end in ENDS if ends.get(end))
    by = {(one["group"], one["value"]): one["same"] / one["known"] for one in facts["groups"]}
    parts = [f"{by[key]:.0%} of {words}" for key, words in (
        (("length", "short"), f"bars in pieces of up to {SHORT} bars"), (("length", "long"), "those in longer ones"),
        (("staves", "1"), "bars on a single staff"), (("staves", "2"), "those on two staves"),
    ) if key in by]  # fmt: skip
    return (
        f"{facts['annotator']}: of {facts['pictures']} pictures {told}. Of {whole['known']} bars "
        f"{whole['same'] / whole['known']:.0%} are as written ({', '.join(parts)}). {whole['altered']} are altered, "
        f"{whole['omitted']} left out and {whole['added']} added, of which {whole['repeated']} repeat a bar beside "
        f"them; {whole['misfits']} of the bars in the ABC do not fill its metre."
    )


def split_errors(runs: Sequence[tuple[str, Path, Path]], out: Path) -> tuple[CausesFacts, Path]:
    """Split each model's wrong answers by what it perceives in the same picture.

    A wrong answer counts as perception by the share of factual questions about its picture that the model gets wrong,
    and as reasoning by the rest: with one such question a picture it is one or the other. Without any it is unknown.

    Args:
        runs: a model's name, its run on questions, and its run on factual questions.

    Raises:
        InputError: a folder is no run, or both name no picture in common.
    """
    rows: list[ErrorCauses] = []
    for name, asked, probed in runs:
        known = _by_picture(probed)
        read = {picture: sum(rights) / len(rights) for picture, rights in known.items() if picture}
        questions = [(picture, right) for picture, rights in _by_picture(asked).items() for right in rights]
        if not read.keys() & {picture for picture, _ in questions}:
            raise InputError(f"{probed}: expected factual questions about pictures of {asked}, found none")
        wrong = [read.get(picture or "") for picture, right in questions if not right]
        shares = [share for share in wrong if share is not None]
        rights = [right for rights in known.values() for right in rights]
        rows.append(
            {
                "model": name,
                "questions": len(questions),
                "wrong": len(wrong),
                "perception": len(shares) - sum(shares),
                "reasoning": sum(shares),
                "unknown": len(wrong) - len(shares),
                "facts": len(rights),
                "facts_right": sum(rights),
            }
        )
    facts: CausesFacts = {"models": rows}
    return facts, write_record(out, CAUSES, facts, causes_page(facts).files())


def _by_picture(run: Path) -> dict[str | None, list[bool]]:
    """Return whether each answered question of a run is right, by picture."""
    path = run / "predictions.parquet"
    if not path.is_file():
        raise InputError(f"{run}: expected the folder of `earmark eval run` with predictions.parquet, found none")
    found: dict[str | None, list[bool]] = {}
    for cluster, right in tuples_of(pq.read_table(path), "cluster", "right"):
        if right is not None:
            found.setdefault(cluster, []).append(right)
    return found


def causes_page(facts: CausesFacts) -> ResultPage:
    """Return the page of split errors: perception by itself (Table 5), and whose errors it explains."""
    columns = (
        "model", percent("facts right"), "questions", "wrong", ResultColumn("perception", decimals=1),
        ResultColumn("reasoning", decimals=1), "unknown",
        percent("of perception"),
    )  # fmt: skip
    rows = tuple(
        (
            one["model"], wilson(one["facts_right"], one["facts"]), one["questions"], one["wrong"], one["perception"],
            one["reasoning"], one["unknown"], one["perception"] / (one["perception"] + one["reasoning"] or 1),
        )
        for one in facts["models"]
    )  # fmt: skip
    says = "An error counts as perception by the share of wrong facts about its picture, and as reasoning by the rest."
    return ResultPage("Errors of perception and of reasoning", (ResultTable("Wrong answers", columns, rows, says),))
