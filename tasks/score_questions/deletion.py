"""Options that reviewers delete: the question stays with the others, and reads otherwise from then on."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from earmark.schemas.score_questions import OPTIONS
from earmark.tasks.build.ask import Row
from earmark.tasks.importers.rows import Reject
from earmark.tasks.score_questions.requests import options_of
from earmark.tasks.score_questions.reviews import Verdict, enough, option_id


class Left(NamedTuple):
    """A question after its reviews."""

    row: Row  # the question without the options that are deleted
    contents: tuple[str, ...]  # what named its content before each deletion, and now
    rejects: list[tuple[str, Reject]]  # its deleted options
    reviewers: tuple[str, ...]  # who deleted them


def content_of(row: Row) -> str:
    """Names what a reviewer looks at, whatever the letters: another wording needs another look."""
    truth, *others = options_of(row)
    shown = [row["question"], truth, sorted(others), row["image_sha256"]]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def without_deleted(row: Row, verdicts: Iterable[Verdict], by: Literal["any", "majority", "all"]) -> Left:
    """A question without the wrong options that enough of its reviewers delete.

    Reviews of what is left then count as well, and may delete more.

    Args:
        verdicts: all reviews of it, whatever it read like.
        by: how many of those who saw the same must delete an option.
    """
    by_content: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_content[verdict.content_sha256].append(verdict)
    contents, rejects, reviewers = [content_of(row)], [], dict[str, None]()
    while own := by_content.pop(contents[-1], []):
        gone = {}
        for text in options_of(row)[1:]:
            who = [verdict.reviewer for verdict in own if option_id(text) in verdict.deletes]
            if enough(len(who), len(own), by):
                gone[text] = who
        if not gone:
            break
        for text, who in gone.items():
            detail = f"expected an option that reviewers keep, {', '.join(who)} deleted {text[:80]!r}"
            refs = (("clip", row["image_sha256"]), *(("annotator", reviewer) for reviewer in who))
            rejects.append(
                (OPTIONS.name, Reject(row["thread_key"], "option_deleted", detail, "", None, made_from=refs))
            )
            reviewers |= dict.fromkeys(who)
        kept = {name: [text for text in row[name] if text not in gone] for name in ("other_texts", "distractors")}
        row = {**row, **kept}
        contents.append(content_of(row))
    return Left(row, tuple(contents), rejects, tuple(reviewers))
