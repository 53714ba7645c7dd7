"""Qualify judges of pairs by a table of pairs with known truth, and by controls made of the build's pairs."""

from collections.abc import Iterator

from earmark.schemas.errors import InputError
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.evaluation.controls import Sides, make_controls
from earmark.tasks.evaluation.qualification import Exam, Given
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.media import measure
from earmark.tasks.pipeline.rows import Rows, read_rows
from earmark.tasks.pipeline.walk import Draw
from earmark.tasks.pseudo_preferences.gold_files import clip_at, files_of, read_pairs
from earmark.tasks.pseudo_preferences.judging import judge_pairs, matched
from earmark.tasks.store.staging import Stage

PLACES = {"forward": {"A": "a", "B": "b"}, "reverse": {"A": "b", "B": "a"}}


def questions(stage: Stage, config: PseudoPreferences, pairs: Rows) -> Iterator[Row]:
    """Yield rows for the walk over pairs, in the asked dimensions; heard as pairs are."""
    rows = list(_questions(stage, config, pairs))
    changes = matched(stage, config, rows) if config.judge.match else [{}] * len(rows)
    yield from (row | change for row, change in zip(rows, changes, strict=True))


def _questions(stage: Stage, config: PseudoPreferences, pairs: Rows) -> Iterator[Row]:
    qualify = config.judge.qualify
    assert qualify is not None
    if qualify.gold is not None:
        yield from _gold_rows(stage, config, qualify.gold)
    folder = config.clips_folder()
    sides = Sides("pair_id", "prompt_id", "modality", ("musicality",), ("alignment",), lambda file: folder / file)
    for row in make_controls(stage.work / "controls", read_rows(pairs), qualify, sides, config.seed):
        truth = {name: better for name, better in row["truth"].items() if name in config.judge.dimensions}
        if truth or row["control"] == "same":
            yield {**row, "truth": truth}


class PairDraw(Draw):
    """A draw of the walk over pairs."""

    order: str
    dimensions: str


def answers(draw: PairDraw) -> Iterator[Given]:
    """Yield the answers of a pass over a pair, in the pair's own letters."""
    letters, value = PLACES[draw["order"]], draw["value"]
    for dimension in draw["dimensions"].split("+"):
        choice = None if value is None else letters.get(value[dimension], "tie")
        yield Given(dimension, choice, letters["A"], letters["B"])


EXAM = Exam(judge_pairs, questions, answers)


def _gold_rows(stage: Stage, config: PseudoPreferences, written: str) -> Iterator[Row]:
    """Yield the questions of a table of gold."""
    rows = read_pairs(config, written)
    named = dict.fromkeys(file for row in rows for file in files_of(row))
    files = {file: clip_at(config, written, file) for file in named}
    measured = dict(zip(files, measure(stage.store, "measure gold", list(files.values())), strict=True))
    for row in rows:
        shown: Row = {}
        for side, file in (("a", row.audio_a), ("b", row.audio_b), ("reference", row.reference_audio)):
            sha256, duration_s, *_, fault, detail = measured[file] if file else [None] * 4
            if fault is not None:
                raise InputError(f"{row.source_file}, line {row.line}: {fault}: {detail}")
            path = str(files[file]) if file else None
            shown |= {f"{side}_sha256": sha256, f"{side}_file": path, f"{side}_duration_s": duration_s}
        lyrics, reference = "+lyrics" if row.lyrics else "", "+audio" if row.reference_audio else ""
        yield {
            **shown,
            "pair_id": f"gold {row.source_file}:{row.line}",
            "text": row.text,
            "lyrics": row.lyrics,
            "control": "gold",
            "domain": row.domain or f"text{lyrics}{reference}",
            "truth": {name: better for name, better in row.truth.items() if name in config.judge.dimensions},
        }
