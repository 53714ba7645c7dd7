"""Choose clips and pairs for a critic, and write the tables of its critiques."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.critiques import ASPECTS, CRITIQUES, PAIRED_CRITIQUES, read_scores, with_final_line
from earmark.schemas.mos_preferences import PAIRS, RATINGS, MosPreferences
from earmark.schemas.reasons import AudioFault, Reject
from earmark.schemas.tables import Table
from earmark.tasks.mos_preferences.clips import find_audio, root_of
from earmark.tasks.mos_preferences.critiquing import ASK_OF, SIDES, CritiqueQuestion, kinds_asked
from earmark.tasks.mos_preferences.sources import heard_sources
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.media import clip_below, measure
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Draw, Walked
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.sql import by_split, connect, query, view_parquet
from earmark.tasks.store.staging import SplitFiles, Stage

TABLE_OF: dict[str, Table] = {"single": CRITIQUES, "paired": PAIRED_CRITIQUES}
QUESTIONS_A_SHARD = 500  # with the provider's batch API as many as fill a batch
LIMIT_OF = {"single": "critiques.clips", "paired": "critiques.pairs"}
MEASURED = row_schema(
    "first_path string, first_sha256 string, first_duration_s float64, second_path string, second_sha256 string, "
    "second_duration_s float64, reason string, detail string"
)
ANSWERS = row_schema(
    f"kind string, item string, {', '.join(f'{aspect} string' for aspect in ASPECTS)}, rationale string, "
    "first_score int64, second_score int64, request_key string, tries int64, notes string, free_text string"
)


class CriticQuestions(NamedTuple):
    """The critic's questions."""

    rows: Rows[CritiqueQuestion]
    candidates: dict[str, int]  # candidates by kind


@step("plan-critiques", label="plan critiques")
def plan_critiques(
    stage: Stage, config: MosPreferences, clips: Rows, ratings: SplitFiles, pairs: SplitFiles
) -> Done[CriticQuestions]:
    """Choose the critic's clips and pairs, and find and measure their audio."""
    critiques = config.critiques
    assert critiques is not None
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "placed", [clips.path])
        for table, files in ((RATINGS, ratings), (PAIRS, pairs)):
            view_parquet(connection, table.name, [path for paths in files.values() for path in paths])
        chosen_from = {"seed": config.seed, "splits": list(critiques.splits), "datasets": heard_sources(config)}
        connection.execute(query("mos_preferences/critique_items"), chosen_from)
        limits = {"clips": critiques.clips, "pairs": critiques.pairs}
        chosen = connection.sql(query("mos_preferences/critique_questions"), params=limits).to_arrow_table()
        candidates = connection.execute("SELECT kind, count(*) FROM critique_items GROUP BY kind").fetchall()
    schema = pa.schema([*chosen.schema, *MEASURED])
    rows = pa.Table.from_pylist(_measured(stage, config, chosen.to_pylist()), schema)
    a_shard = critiques.batch_requests if critiques.batch else QUESTIONS_A_SHARD
    return Done(CriticQuestions(keep_rows(stage, "questions", rows, a_shard), dict(candidates)))


def _measured(stage: Stage, config: MosPreferences, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add path, hash and length of their clips to questions; or reason and detail of an unreadable clip."""
    roots = {source.name: root_of(config, source) for source in config.sources}
    sides = [(row, side) for row in rows for side in SIDES[row["kind"]]]
    names = [(row["dataset"], row[f"{side}_file"], row[f"{side}_audio"]) for row, side in sides]
    places = {name: clip_below(roots[name[0]], find_audio(roots[name[0]].folder, *name[1:])) for name in set(names)}
    files = [places[name] for name in names]
    measured = measure(stage.store, "index the critic's clips", files)
    for (row, side), file, (sha256, duration_s, *_, reason, detail) in zip(sides, files, measured, strict=True):
        path = None if isinstance(file, AudioFault) else str(file)
        row |= {f"{side}_path": path, f"{side}_sha256": sha256, f"{side}_duration_s": duration_s}
        if reason and not row.get("reason"):
            row |= {"reason": reason, "detail": f"{row[f'{side}_id']}: {detail}"}
    return rows


@step("critiques", final=True, label="write critiques")
def write_critiques(stage: Stage, config: MosPreferences, questions: CriticQuestions, critiqued: Walked) -> Done[None]:
    """Write the published tables `critiques` and `paired_critiques`; reject questions without a valid answer."""
    assert config.critiques is not None
    rows = read_rows(questions.rows)
    chosen: Counter[str] = Counter(row["kind"] for row in rows)
    rejects: dict[str, list[tuple[str, Reject]]] = {kind: [] for kind in TABLE_OF}
    for end in sorted(critiqued.given_up(), key=lambda end: str(rows[end["at"]]["item"])):
        row = rows[end["at"]]
        rejects[row["kind"]].append((end["stage"], Reject(row["item"], end["reason"], end["detail"], "", None)))
    critic, accounts = config.critiques, []
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "questions", [questions.rows.path])
        draws: Iterable[Draw] = critiqued.read_draws()
        valid = (draw for draw in draws if draw["last"] and draw["reason"] is None)
        connection.register("answers", pa.Table.from_pylist(list(map(_answer, valid)), ANSWERS))
        for kind, table in TABLE_OF.items():
            entered = questions.candidates.get(kind, 0)
            by = {"model": critic.annotator, "prompt": ASK_OF[kind].prompt_of(config, {"kind": kind}).id}
            account = Account(
                entered=entered,
                kept=stage.write_splits(table, by_split(connection, query(f"mos_preferences/{table.name}"), by)),
                rejects=rejects[kind],
                filtered={f"beyond {LIMIT_OF[kind]}": entered - chosen[kind]},
                notes=(f"written by {critic.annotator}",) if kind in kinds_asked(critic) else (),
                name=table.name,
                unit="clips" if kind == "single" else "pairs",
                table=table.name,
            )
            accounts.append(account)
    return Done(None, *accounts)


def _answer(draw: Row) -> Row:
    about = {name: draw[name] for name in ("kind", "item", "request_key", "notes")} | {"tries": draw["draw"] + 1}
    value: Any = draw["value"]
    if draw["kind"] == "single":
        return {**about, **{name: text.strip() for name, text in value.items()}}
    scores = read_scores(value)
    assert scores is not None
    return {**about, "rationale": with_final_line(value), "first_score": scores.first, "second_score": scores.second}
