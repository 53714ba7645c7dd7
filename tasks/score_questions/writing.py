"""Shards of threads become questions step by step; the ledger answers what was asked before.

Each step leaves a file a shard below `work`, which the next one reads: `rewritten`, `settled`, `completed`, `labelled`.
A thread that a step gives up has a reason there, and goes no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.score_questions import CATEGORIES, ScoreQuestions
from tasks.annotation.outcome import Answer, Outcome, Reject
from tasks.annotation.request import Request
from tasks.annotation.session import Session
from tasks.build.asking import Checked, Fault, ask_checked
from tasks.score_questions import asking
from tasks.score_questions.asking import DIFFICULTY, TAXONOMY
from tasks.score_questions.checks import check_rewriting, good_distractors
from tasks.score_questions.lettering import LETTERS
from tasks.score_questions.threads import Thread, best_of, threads_of
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage

_TEXTS = pa.list_(pa.field("element", pa.string()))
_ASKED = [("request_key", pa.string()), ("reason", pa.string()), ("detail", pa.string()), ("final", pa.bool_())]
OPTION = pa.struct([("comment_key", pa.string()), ("text", pa.string()), ("score", pa.int64())])
REWRITTEN = pa.schema(
    [
        ("thread_key", pa.string()),
        ("question", pa.string()),
        ("options", pa.list_(OPTION)),
        ("sample", pa.int64()),
        *_ASKED,
    ]
)
SETTLED = pa.schema(
    [("thread_key", pa.string()), ("truth", pa.string()), ("preference", pa.string()), ("tied", pa.int64()), *_ASKED]
)
COMPLETED = pa.schema([("thread_key", pa.string()), ("distractors", _TEXTS), ("sample", pa.int64()), *_ASKED])
LABELLED = pa.schema(
    [
        ("thread_key", pa.string()),
        ("category", pa.string()),
        ("subcategory", pa.string()),
        ("difficulty", pa.string()),
        ("difficulty_key", pa.string()),
        *_ASKED,
    ]
)
PARTS = {"rewritten": REWRITTEN, "settled": SETTLED, "completed": COMPLETED, "labelled": LABELLED}

Row = tuple[Any, ...]


def rewrite_shard(stage: Stage, config: ScoreQuestions, session: Session, shard: int) -> int:
    """Have the threads of a shard rewritten as questions, options drawn from their comments.

    Returns:
        How many there were.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    threads = threads_of(stage, shard)

    def check(place: int, value: Any) -> Fault | None:
        comments = threads[place].comments
        needed, made = asking.needed_numbers(config, comments), config.questions
        return check_rewriting(value, comments, needed, made.longest_option_words, made.options)

    requests = [asking.rewriting_request(config, thread) for thread in threads]
    told = ask_checked(session, requests, check, config.questions.tries)
    _write(stage, "rewritten", shard, [_rewritten(*both) for both in zip(threads, told, strict=True)])
    return len(threads)


def _rewritten(thread: Thread, one: Checked) -> Row:
    if failure := _failure(one):
        return (thread.thread_key, None, [], one.sample, one.outcome.key, *failure)
    value = _value(one.outcome)
    if not value["usable"]:
        why = f"the writer finds no question in it: {_line(value['why']) or 'no reason given'}"
        return (thread.thread_key, None, [], one.sample, one.outcome.key, "unusable", why, True)
    options = []
    for option in value["options"]:
        comment = thread.comments[option["comment"] - 1]
        options.append({"comment_key": comment.comment_key, "text": _line(option["text"]), "score": comment.score})
    return (thread.thread_key, _line(value["question"]), options, one.sample, one.outcome.key, None, None, True)


def settle_shard(stage: Stage, config: ScoreQuestions, session: Session, shard: int) -> int:
    """Find the right option of each question of a shard: by people's votes; where they tie, by a judge.

    Returns:
        How many questions there were.

    Raises:
        StopRun: as `rewrite_shard`.
    """
    threads = {thread.thread_key: thread for thread in threads_of(stage, shard)}
    rows = usable(stage, "rewritten", shard)
    best = [_best_options(threads[row["thread_key"]], row["options"]) for row in rows]
    tied = [place for place, options in enumerate(best) if len(options) > 1]
    requests = [
        asking.tie_request(
            config,
            rows[place]["question"],
            [option["text"] for option in best[place]],
            threads[rows[place]["thread_key"]].score_image,
        )
        for place in tied
    ]
    judged = dict(zip(tied, session.ask(requests).outcomes, strict=True))
    settled: list[Row] = []
    for place, row in enumerate(rows):
        settled.append(_settled(row["thread_key"], best[place], judged.get(place)))
    _write(stage, "settled", shard, settled)
    return len(rows)


def _best_options(thread: Thread, options: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    best = {comment.comment_key for comment in best_of(thread.comments)}
    return sorted((option for option in options if option["comment_key"] in best), key=lambda o: str(o["comment_key"]))


def _settled(thread_key: str, best: Sequence[Mapping[str, Any]], outcome: Outcome | None) -> Row:
    if outcome is None:
        return (thread_key, best[0]["comment_key"], "human", 1, None, None, None, True)
    if isinstance(outcome, Reject):
        return (thread_key, None, None, len(best), outcome.key, outcome.reason, outcome.detail, outcome.final)
    truth = best[LETTERS.index(str(outcome.value))]["comment_key"]
    return (thread_key, truth, "language_model", len(best), outcome.key, None, None, True)


def complete_shard(stage: Stage, config: ScoreQuestions, session: Session, shard: int) -> int:
    """Have wrong options written for the questions of a shard that have fewer than the config wants.

    Returns:
        How many questions there were.

    Raises:
        StopRun: as `rewrite_shard`.
    """
    made = config.questions
    titles = {thread.thread_key: thread.title for thread in threads_of(stage, shard)}
    rows = drafts(stage, shard)
    wanted = [min(made.distractors, made.options - len(row["options"])) for row in rows]
    places = [place for place, count in enumerate(wanted) if count > 0]

    def held(place: int, value: Any) -> tuple[list[str], Fault | None]:
        row = rows[places[place]]
        written = [text for _, text in sorted(value.items())]
        return good_distractors(written, row["truth_text"], row["other_texts"], wanted[places[place]])

    requests = [
        asking.distractor_request(
            config,
            titles[rows[place]["thread_key"]],
            rows[place]["question"],
            rows[place]["truth_text"],
            rows[place]["other_texts"],
            wanted[place],
        )
        for place in places
    ]
    told = ask_checked(session, requests, lambda place, value: held(place, value)[1], made.tries)
    written = {place: (one, number) for number, (place, one) in enumerate(zip(places, told, strict=True))}
    completed: list[Row] = []
    for place, row in enumerate(rows):
        if place not in written:
            completed.append((row["thread_key"], [], 0, None, None, None, True))
            continue
        one, number = written[place]
        good = [] if isinstance(one.outcome, Reject) else held(number, one.outcome.value)[0]
        completed.append(_completed(config, row, one, good))
    _write(stage, "completed", shard, completed)
    return len(rows)


def _completed(config: ScoreQuestions, row: Mapping[str, Any], one: Checked, good: list[str]) -> Row:
    """What can be used of the last draw is kept, if the question then has options enough and none gives it away."""
    failure = _failure(one)
    lasting = one.fault is None or one.fault.reason != "longer_is_right"
    enough = len(row["options"]) + len(good) >= config.questions.least_options
    if failure and not (enough and lasting and not isinstance(one.outcome, Reject)):
        return (row["thread_key"], [], one.sample, one.outcome.key, *failure)
    return (row["thread_key"], good, one.sample, one.outcome.key, None, None, True)


def label_shard(stage: Stage, config: ScoreQuestions, session: Session, shard: int) -> int:
    """Have the questions of a shard sorted into categories and rated for difficulty.

    Returns:
        How many questions there were.

    Raises:
        StopRun: as `rewrite_shard`.
    """
    rows = drafts(stage, shard, completed=True)
    texts = [(row["question"], sorted([row["truth_text"], *row["other_texts"], *row["distractors"]])) for row in rows]

    def labelled(name: str) -> list[Checked]:
        requests: list[Request] = [asking.label_request(config, name, *text) for text in texts]
        check = check_taxonomy if name == TAXONOMY else lambda place, value: None
        return ask_checked(session, requests, check, config.questions.tries)

    both = zip(rows, labelled(TAXONOMY), labelled(DIFFICULTY), strict=True)
    _write(stage, "labelled", shard, [_labelled(row["thread_key"], *found) for row, *found in both])
    return len(rows)


def check_taxonomy(place: int, value: Any) -> Fault | None:
    """Whether a subcategory belongs to its category."""
    if value["subcategory"] in CATEGORIES[value["category"]]:
        return None
    wanted = ", ".join(CATEGORIES[value["category"]])
    return Fault("other_category", f"expected one of {wanted} for {value['category']}, found {value['subcategory']}")


def _labelled(thread_key: str, taxonomy: Checked, difficulty: Checked) -> Row:
    keys = taxonomy.outcome.key, difficulty.outcome.key
    if failure := _failure(taxonomy) or _failure(difficulty):
        return (thread_key, None, None, None, keys[1], keys[0], *failure)
    found = _value(taxonomy.outcome)
    rated = _value(difficulty.outcome)["difficulty"]
    return (thread_key, found["category"], found["subcategory"], rated, keys[1], keys[0], None, None, True)


def rows_of(stage: Stage, part: str, shard: int) -> list[dict[str, Any]]:
    """What a step left of a shard."""
    rows: list[dict[str, Any]] = pq.ParquetFile(stage.work / part / f"{shard:06d}.parquet").read().to_pylist()
    return rows


def usable(stage: Stage, part: str, shard: int) -> list[dict[str, Any]]:
    """The same without what the step gave up."""
    return [row for row in rows_of(stage, part, shard) if row["reason"] is None]


def drafts(stage: Stage, shard: int, *, completed: bool = False) -> list[dict[str, Any]]:
    """The questions of a shard whose right option is known, with `truth_text` and `other_texts`.

    Args:
        stage: the build.
        shard: number of the shard.
        completed: only those that passed the step that writes wrong options, with its `distractors`.
    """
    settled = {row["thread_key"]: row for row in usable(stage, "settled", shard)}
    done = {row["thread_key"]: row for row in usable(stage, "completed", shard)} if completed else {}
    rows = []
    for row in usable(stage, "rewritten", shard):
        key = row["thread_key"]
        if key not in settled or (completed and key not in done):
            continue
        truth = settled[key]["truth"]
        right = next(option["text"] for option in row["options"] if option["comment_key"] == truth)
        others = [option["text"] for option in row["options"] if option["comment_key"] != truth]
        extra = {"distractors": done[key]["distractors"]} if completed else {}
        rows.append({**row, "truth": truth, "truth_text": right, "other_texts": others, **extra})
    return rows


def _write(stage: Stage, part: str, shard: int, rows: list[Row]) -> None:
    write_rows(stage.work / part / f"{shard:06d}.parquet", PARTS[part], rows)


def _value(outcome: Outcome) -> Any:
    assert isinstance(outcome, Answer)
    return outcome.value


def _failure(one: Checked) -> tuple[str, str, bool] | None:
    """Reason, detail and whether a further run can change it; None if the answer is good."""
    if one.failure is None:
        return None
    reason, detail = one.failure
    if one.tries > 1:
        detail = f"{detail}; asked {one.tries} times"
    return reason, detail, one.outcome.final if isinstance(one.outcome, Reject) else True


def _line(text: str) -> str:
    return " ".join(text.split())
