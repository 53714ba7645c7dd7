"""Judge any clips against any instructions, item by item: `earmark eval rubric`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from earmark.schemas.errors import ConfigError, EarmarkError, InputError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.instruction_rubrics import LANGUAGES, InstructionRubrics
from earmark.schemas.reasons import AudioFault
from earmark.schemas.rubric_rewards import decide
from earmark.schemas.rubric_views import EVALUATIONS
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.audio.probe import Probe
from earmark.tasks.evaluation.judging import ask_rows
from earmark.tasks.evaluation.kinds import number
from earmark.tasks.evaluation.samples import find_mode
from earmark.tasks.evaluation.scores import read_table
from earmark.tasks.instruction_rubrics.items import take_apart
from earmark.tasks.instruction_rubrics.rows import BareItem
from earmark.tasks.pipeline.ask import GivenUp
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.pipeline.walk import ask_each
from earmark.tasks.store.result_table import ResultColumn, ResultTable, percent
from earmark.tasks.store.versions import Store
from earmark.tasks.text.bilingual import language_of

ALIGNMENT = EVALUATIONS[0]


class JudgedItem(BareItem):
    """An item with its answer; the evidence is of the mode `array`."""

    score: float
    evidence: str | None


class JudgedClip(TypedDict):
    """A clip with its judgment; without an answer, `score` is null and `reason` says why."""

    clip: str
    instruction: str
    language: str
    domain: str
    model: str | None
    rating: float | None
    score: float | None
    follows: bool | None
    reason: str | None
    items: list[JudgedItem]


def writing(writer: str | None, judge: str, base_url: str | None, path: Path | None) -> InstructionRubrics:
    """Return a build config whose writer takes instructions apart: that of a file, the named model, or the judge at its
    address."""
    if path is not None:
        if writer is not None:
            raise ConfigError("--writer names a model, and --config has its own: give one of them")
        return parse_config(InstructionRubrics, read_toml(path), path)
    source = {"name": "clips", "subset": "clips", "domain": "mixed", "captions": "clips.csv"}
    values = {"sources": [source], "judge": {"model": judge}, "writer": {"model": writer or judge}}
    config = parse_config(InstructionRubrics, values, Path("earmark eval rubric"))
    if base_url is None or writer is not None:
        return config
    return config.model_copy(update={"writer": config.writer.model_copy(update={"base_url": base_url})})


def judge_clips(
    path: Path,
    store: Store,
    judge: Examinee,
    config: InstructionRubrics,
    *,
    mode: str = "rubric",
    language: str | None = None,
    domain: str = "mixed",
) -> list[JudgedClip]:
    """Take instructions apart, and ask the judge about the clips; the store's ledger keeps the answers.

    Args:
        path: a table (`clip`, `instruction`; `model`, `rating`, `language`, `domain` if there), or a folder of clips,
            each with a text file of its name.
        judge: the listener.
        config: names the writer, and the prompts for decomposition.
        mode: `rubric`, `array` or `holistic`.
        language: of rows that name none; None for each instruction's own.
        domain: of rows that name none.

    Raises:
        InputError: the table cannot be read, or names no clip.
        EarmarkError: no clip has an answer.
        StopRun: a fault of every request, or the budget's end.
    """
    rows = list(_rows(path, language, domain))
    files = [(path if path.is_dir() else path.parent) / row["clip"] for row in rows]
    looked: list[Probe | AudioFault] = media_index(store).look(files)
    heard: list[tuple[JudgedClip, Path, Probe]] = [
        (row, file, one) for row, file, one in zip(rows, files, looked, strict=True) if isinstance(one, Probe)
    ]
    for row, fault in zip(rows, looked, strict=True):
        if not isinstance(fault, Probe):
            row |= {"reason": f"{fault.reason}: {fault.detail}"}
    asked = find_mode(ALIGNMENT, mode)
    if asked.items is not None:
        _take_apart(store, config, [row for row, *_ in heard])
    whole: list[tuple[JudgedClip, Path, Probe]] = [
        (row, file, probe) for row, file, probe in heard if row["reason"] is None
    ]
    questions = [
        {"id": str(at), "clip_audio": probe.clip_sha256, "instruction": row["instruction"], "language": row["language"],
         "questions": [item["question"] for item in row["items"]]}
        for at, (row, _, probe) in enumerate(whole)
    ]  # fmt: skip
    clips = [(probe.clip_sha256, file, probe.duration_s) for _, file, probe in whole]
    answers = ask_rows(store, ALIGNMENT, asked, judge, questions, clips, config.own_prompts())
    for (row, *_), (prediction, said) in zip(whole, answers, strict=True):
        if prediction.score is None:
            row |= {"reason": f"{prediction.reason}: {prediction.detail}", "items": []}
            continue
        follows = decide([one["score"] for one in prediction.items] or [prediction.score])
        row |= {"score": prediction.score, "follows": follows}
        evidence = {one["id"]: one["evidence"] for one in said} if asked.together else {}
        for at, (item, one) in enumerate(zip(row["items"], prediction.items, strict=False), 1):
            item |= {"score": one["score"], "evidence": evidence.get(at)}
    if rows and all(row["score"] is None for row in rows):
        raise EarmarkError(f"none of {len(rows):,} clips has an answer, first {rows[0]['clip']}: {rows[0]['reason']}")
    return rows


def by_model(rows: Sequence[JudgedClip]) -> ResultTable:
    """Tabulate mean scores by generator (the paper's Table 5), and correlations with the ratings (Table 3)."""
    models = sorted({row["model"] for row in rows if row["model"] is not None})
    groups = [("all", list(rows)), *((name, [row for row in rows if row["model"] == name]) for name in models)]
    rated = any(row["rating"] is not None for row in rows)
    heads = [ResultColumn(name, decimals=3) for name in ("LCC", "SRCC", "KTAU")] if rated else []
    return ResultTable(
        "Score by model",
        ("model", "clips", "answered", percent("mean score"), percent("follows"), *heads),
        tuple((name, *_figures(group), *(_correlations(group) if rated else ())) for name, group in groups),
    )


def _figures(rows: Sequence[JudgedClip]) -> tuple[int, int, float | None, float | None]:
    scores = [row["score"] for row in rows if row["score"] is not None]
    follows = sum(row["follows"] is True for row in rows)
    shares = (sum(scores) / len(scores), follows / len(scores)) if scores else (None, None)
    return len(rows), len(scores), *shares


def _correlations(rows: Sequence[JudgedClip]) -> tuple[float | None, ...]:
    """Return Pearson's, Spearman's and Kendall's correlation of scores and ratings; none where one does not vary."""
    pairs = [(row["score"], row["rating"]) for row in rows if row["score"] is not None and row["rating"] is not None]
    scores, ratings = [one for one, _ in pairs], [one for _, one in pairs]
    if len({*scores}) < 2 or len({*ratings}) < 2:
        return None, None, None
    from scipy import stats  # takes a second, and most commands do without

    return tuple(float(of(scores, ratings).statistic) for of in (stats.pearsonr, stats.spearmanr, stats.kendalltau))


def _rows(path: Path, language: str | None, domain: str) -> Iterator[JudgedClip]:
    for at, row in enumerate(_named(path), 1):
        clip, instruction = row.get("clip"), str(row.get("instruction") or "").strip()
        own = row.get("language") or language or language_of(instruction)
        if not clip or not instruction or own not in LANGUAGES:
            raise InputError(f"{path}, row {at}: expected a clip, an instruction, and {' or '.join(LANGUAGES)}")
        rating = row.get("rating")
        rated = None if rating in (None, "") else number(f"{path}, row {at}", "rating", rating)
        yield {
            "clip": str(clip), "instruction": instruction, "language": own, "domain": row.get("domain") or domain,
            "model": row.get("model"), "rating": rated,
            "score": None, "follows": None, "reason": None, "items": [],
        }  # fmt: skip


def _named(path: Path) -> Iterable[dict[str, Any]]:
    """Return the rows of a table, or the clips of a folder with their texts."""
    if not path.is_dir():
        rows: list[dict[str, Any]] = read_table(path).to_pylist()
        return rows
    texts = sorted(path.glob("*.txt"))
    clips = {one.stem: one.name for one in sorted(path.iterdir()) if one.suffix != ".txt" and one.is_file()}
    if not texts:
        raise InputError(f"{path}: expected a text file for each clip, such as a.txt beside a.wav, found none")
    return [{"clip": clips.get(one.stem, one.name), "instruction": one.read_text("utf-8")} for one in texts]


def _take_apart(store: Store, config: InstructionRubrics, rows: Sequence[JudgedClip]) -> None:
    """Fill in the rows' items; equal instructions are taken apart once."""
    with open_session(store, config.writer, roles="writer") as session:
        ended = ask_each(config, {"writer": session}, take_apart, [{**row, "written_by": None} for row in rows])
    for row, parts in zip(rows, ended, strict=True):
        if isinstance(parts, GivenUp):
            row |= {"reason": f"{parts.stage}: {parts.reason}: {parts.detail}"}
        else:
            items: list[BareItem] = parts.items
            row |= {"items": [{**item, "score": 0.0, "evidence": None} for item in items]}
