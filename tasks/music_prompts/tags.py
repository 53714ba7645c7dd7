"""Choose the tags for prompts: a judge listens to their tracks; four criteria decide."""

from collections import Counter, defaultdict
from operator import itemgetter
from typing import Any

import duckdb

from earmark.schemas.music_prompts import COOCCURRENCE, TAGS, MusicPrompts
from earmark.schemas.questions import YesNoValue, says_yes
from earmark.schemas.reasons import AudioFault, Reject
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.music_prompts.asking import VERIFY, TagQuestion
from earmark.tasks.music_prompts.sources import RECALLS_SCHEMA, Lists, verified_clips
from earmark.tasks.pipeline.ask import Asker, GivenUp
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.rows import A_SHARD, Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.parquet import tuples_of, write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

UNVERIFIED = "tags are not verified: no judge was asked whether tracks sound like their tags"


@step("questions", label="choose tags to verify")
def choose_questions(stage: Stage, config: MusicPrompts, lists: Lists) -> Done[Rows]:
    """Choose the judge's questions: tags passing the other criteria, each on a sample of its tracks.

    Returns:
        Rows of `questions.sql`, each with `clip_sha256` and `duration_s` of its file, or `reason` and `detail` of its
        fault.
    """
    judge = config.verification
    assert judge is not None
    with connect(stage.work / "spill") as connection:
        open_lists(connection, lists)
        judge_tags(connection, config, verified=False)
        questions: list[TagQuestion] = connection.sql(query("music_prompts/questions")).to_arrow_table().to_pylist()
    probes = media_index(stage.store).look(verified_clips(config, [row["file"] for row in questions]))
    rows = [
        {**row, "reason": probe.reason, "detail": probe.detail}
        if isinstance(probe, AudioFault)
        else {**row, "clip_sha256": probe.clip_sha256, "duration_s": probe.duration_s}
        for row, probe in zip(questions, probes, strict=True)
    ]
    return Done(keep_rows(stage, "questions", rows, judge.batch_requests if judge.batch else A_SHARD))


@walk("verify", asks=[VERIFY], label="verify tags")
async def verify_tag(asker: Asker[MusicPrompts], row: TagQuestion) -> bool:
    """Ask a judge whether it hears a tag on a track."""
    if "reason" in row:
        raise GivenUp("verify", row["reason"], row["detail"])
    answer: YesNoValue = await asker(VERIFY, row)
    return says_yes(answer["p_yes"])


@step("verify", unit="tags on tracks", label="")
def count_recalls(stage: Stage, config: MusicPrompts, lists: Lists, verified: Walked) -> Done[Lists]:
    """Count the tracks, with and without each tag, on which the judge hears it; reject unanswered questions."""
    assert config.verification is not None
    questions = read_rows(verified.source)
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # in the order of RECALLS_SCHEMA
    for at, detects in verified.results():
        row = questions[at]
        asked = 0 if row["carried"] else 2
        counts[row["category"], row["tag"]][asked] += 1
        counts[row["category"], row["tag"]][asked + 1] += detects
    rejects = []
    for end in verified.given_up():
        row = questions[end["at"]]
        item = f"{row['category']}---{row['tag']} {row['track_id']}"
        rejects.append((TAGS.name, Reject(item, end["reason"], end["detail"], row["file"], None)))
    recalls = stage.work / "verified.parquet"
    rows = [
        (*tag, *(count if one[at // 2 * 2] else None for at, count in enumerate(one))) for tag, one in counts.items()
    ]
    write_rows(recalls, RECALLS_SCHEMA, sorted(rows, key=itemgetter(0, 1)))
    judge = config.verification
    note = f"heard by {judge.annotator}, up to {judge.tracks} tracks a tag and {judge.untagged} without it"
    answered = sum(one[0] + one[2] for one in counts.values())
    return Done(lists._replace(recalls=recalls), Account(len(questions), answered, rejects, notes=(note,)))


@step("tags", unit="tags", label="choose tags")
def choose_tags(stage: Stage, config: MusicPrompts, lists: Lists) -> Done[None]:
    """Write the published tables `tags` and `cooccurrence`; reject tags outside the pool with their criterion."""
    verified = config.verification is not None or config.recalls is not None
    with connect(stage.work / "spill") as connection:
        open_lists(connection, lists)
        params = judge_tags(connection, config, verified=verified)
        tags = connection.sql("FROM tags ORDER BY category, tag").to_arrow_table()
        stage.write(TAGS, UNSPLIT, [tags])
        shown = {name: params[name] for name in ("popularity", "mentions", "recall")}
        shown["asked"] = "a row of recalls with asked above 0" if config.recalls else "tracks to ask a judge about"
        refused = connection.sql(query("music_prompts/refuse_tags"), params=shown).to_arrow_table()
        connection.execute(query("music_prompts/cooccurrence"))
        stage.write(COOCCURRENCE, UNSPLIT, [connection.sql("FROM cooccurrence ORDER BY ALL").to_arrow_table()])
    pool = Counter(category for category, in_pool in tuples_of(tags, "category", "in_pool") if in_pool)
    shares = ", ".join(f"{count} of {category}" for category, count in sorted(pool.items()))
    notes = [f"tags in the pool: {shares or 'none'}", *([] if verified else [UNVERIFIED])]
    return Done(None, Account(len(tags), pool.total(), refused, notes=notes))


def open_lists(connection: duckdb.DuckDBPyConnection, lists: Lists) -> None:
    """Create views of the import's files."""
    for name, path in lists._asdict().items():
        view_parquet(connection, name, [path])
    connection.execute(query("music_prompts/wilson"))


def judge_tags(connection: duckdb.DuckDBPyConnection, config: MusicPrompts, *, verified: bool) -> dict[str, Any]:
    """Create the table `tags` from the views of `open_lists`; return its parameters."""
    params = {
        "popularity": config.pool.popularity,
        "mentions": config.pool.mentions,
        "recall": config.pool.recall,
        "captioned": bool(config.captions),
        "verified": verified,
    }
    connection.execute("DROP TABLE IF EXISTS tags")
    connection.execute(query("music_prompts/tags"), params)
    return params
