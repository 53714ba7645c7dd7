"""`music-prompts`: which tags prompts may use. A judge listens to their tracks; four criteria decide."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb

from schemas.music_prompts import COOCCURRENCE, TAGS, MusicPrompts
from schemas.tables import UNSPLIT
from tasks.annotation.outcome import Answer
from tasks.annotation.session import Session
from tasks.audio.probe import AudioFault
from tasks.build.asking import check_failed
from tasks.build.media import media_index
from tasks.build.progress import working
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.music_prompts.asking import concept_request
from tasks.music_prompts.sources import RECALLS_SCHEMA, verified_clips
from tasks.store.manifest import Step
from tasks.store.parquet import write_rows
from tasks.store.sql import query, view_parquet
from tasks.store.staging import Stage

ASKED_AT_ONCE = 2000
HEARD = 0.5  # a judge hears a tag if it gives yes the larger probability


def open_lists(connection: duckdb.DuckDBPyConnection, stage: Stage) -> None:
    """Make views of what the import left."""
    for name in ("track_tags", "lexicon", "captions", "mentions", "recalls", "sampled"):
        view_parquet(connection, name, [stage.work / f"{name}.parquet"])
    connection.execute(query("music_prompts/wilson"))


def judge_tags(connection: duckdb.DuckDBPyConnection, config: MusicPrompts, *, verified: bool) -> dict[str, Any]:
    """Create the table `tags`; gives the parameters that it was made with.

    Args:
        connection: with the views of `open_lists`.
        config: the build config.
        verified: whether recalls count.
    """
    given = {
        "popularity": config.pool.popularity,
        "mentions": config.pool.mentions,
        "recall": config.pool.recall,
        "instrumental": config.pool.instrumental,
        "captioned": bool(config.captions),
        "verified": verified,
    }
    connection.execute("DROP TABLE IF EXISTS tags")
    connection.execute(query("music_prompts/tags"), given)
    return given


def questions(connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> list[dict[str, Any]]:
    """What a judge is asked: tags that the other criteria let pass, each on a sample of its tracks."""
    judge_tags(connection, config, verified=False)
    rows: list[dict[str, Any]] = connection.sql(query("music_prompts/questions")).to_arrow_table().to_pylist()
    return rows


def verify(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts, session: Session) -> Step:
    """Ask a judge whether it hears tags on tracks that carry them. Leaves `work/recalls.parquet`.

    Raises:
        EarmarkError: more requests than the config allows have no answer yet.
    """
    assert config.verification is not None
    asked = questions(connection, config)
    heard: dict[tuple[str, str], list[bool]] = {}
    failures: list[dict[str, Any]] = []
    rejects: list[tuple[str, Reject]] = []

    def refuse(row: dict[str, Any], reason: str, detail: str) -> None:
        item = f"{row['category']}---{row['tag']} {row['track_id']}"
        rejects.append((TAGS.name, Reject(item, reason, detail, row["file"], None)))

    with working("verify tags", len(asked)) as work:
        for start in range(0, len(asked), ASKED_AT_ONCE):
            rows = asked[start : start + ASKED_AT_ONCE]
            found = media_index(stage.store).look(verified_clips(config, [row["file"] for row in rows]))
            fit = []
            for row, probe in zip(rows, found, strict=True):
                if isinstance(probe, AudioFault):
                    refuse(row, probe.reason, probe.detail)
                else:
                    fit.append((row, concept_request(config, row, probe.clip_sha256, probe.duration_s)))
            outcomes = session.ask([request for _, request in fit]).outcomes
            for (row, _), outcome in zip(fit, outcomes, strict=True):
                if isinstance(outcome, Answer):
                    heard.setdefault((row["category"], row["tag"]), []).append(outcome.value["p_yes"] >= HEARD)
                else:
                    refuse(row, outcome.reason, outcome.detail)
                    failures.append({"reason": outcome.reason, "final": outcome.final})
            work.advance(len(rows))
    check_failed(config.verification.most_failed, len(asked), failures)
    counted = [(*tag, len(answers), sum(answers)) for tag, answers in sorted(heard.items())]
    write_rows(stage.work / "recalls.parquet", RECALLS_SCHEMA, counted)
    stage.write_rejects("verify", rejects_table("verify", rejects))
    return stage.record(
        Step(
            name="verify",
            place=2,
            unit="tags on tracks",
            stage="verify",
            entered=len(asked),
            kept=len(asked) - len(rejects),
            rejected=dict(sorted(Counter(reject.reason for _, reject in rejects).items())),
            notes=(f"heard by {config.verification.annotator}, up to {config.verification.tracks} tracks a tag",),
        )
    )


def write_tags(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> Step:
    """Write the published tables `tags` and `cooccurrence`; a tag outside the pool is a reject with its criterion."""
    verified = config.verification is not None or config.recalls is not None
    given = judge_tags(connection, config, verified=verified)
    tags = connection.sql("FROM tags ORDER BY category, tag").to_arrow_table()
    stage.write(TAGS, UNSPLIT, [tags])
    shown = {name: given[name] for name in ("popularity", "mentions", "recall")}
    refused = connection.sql(query("music_prompts/refuse_tags"), params=shown).to_arrow_table()
    stage.write_rejects("tags", refused)
    connection.execute(query("music_prompts/cooccurrence"))
    pairs = connection.sql("FROM cooccurrence ORDER BY ALL").to_arrow_table()
    stage.write(COOCCURRENCE, UNSPLIT, [pairs])
    pool = Counter(row["category"] for row in tags.to_pylist() if row["in_pool"])
    held = ", ".join(f"{count} of {category}" for category, count in sorted(pool.items()))
    return stage.record(
        Step(
            name="tags",
            place=3,
            unit="tags",
            stage="tags",
            entered=len(tags),
            kept=sum(pool.values()),
            rejected=dict(sorted(Counter(refused["reason"].to_pylist()).items())),
            notes=(f"tags in the pool: {held or 'none'}", *([] if verified else [UNVERIFIED])),
        )
    )


UNVERIFIED = "tags are not verified: no judge was asked whether tracks sound like their tags"


def opened_tags(connection: duckdb.DuckDBPyConnection, stage: Stage) -> None:
    """Make views of the published tables `tags` and `cooccurrence`."""
    for table in (TAGS, COOCCURRENCE):
        view_parquet(connection, table.name, sorted((stage.version / table.name).glob("*.parquet")))
