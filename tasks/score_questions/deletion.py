"""Delete options on reviewers' request: the question stays with the others, with new content from then on."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import OPTIONS
from earmark.tasks.score_questions.requests import only_options, options_of
from earmark.tasks.score_questions.reviews import ReviewerVerdict, option_id
from earmark.tasks.score_questions.rows import LabelledQuestion


class Left(NamedTuple):
    """A question after its reviews."""

    row: LabelledQuestion  # the question without the deleted options
    contents: tuple[str, ...]  # content hashes before each deletion, and now
    rejects: list[tuple[str, Reject]]  # its deleted options
    reviewers: tuple[str, ...]  # reviewers behind the deletions


def content_of(row: LabelledQuestion) -> str:
    """Hash a question's content apart from its letters: another wording needs another review."""
    truth, *others = options_of(row)
    shown = [row["question"], truth, sorted(others), row["image_sha256"]]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def without_deleted(row: LabelledQuestion, verdicts: Iterable[ReviewerVerdict]) -> Left:
    """Remove the wrong options that one of a question's reviewers deletes.

    Reviews of the remaining question then count as well, and may delete more.

    Args:
        verdicts: all its reviews, of any content.
    """
    by_content: dict[str, list[ReviewerVerdict]] = defaultdict(list)
    for verdict in verdicts:
        by_content[verdict.content_sha256].append(verdict)
    contents, rejects, reviewers = [content_of(row)], [], dict[str, None]()
    while own := by_content.pop(contents[-1], []):
        gone = {}
        for text in options_of(row)[1:]:
            who = {one.reviewer: one.note for one in own if option_id(text) in one.deletes}
            if who:
                gone[text] = who
        if not gone:
            break
        for text, who in gone.items():
            said = (f"{name} ({note[:80]!r})" if note else name for name, note in who.items())
            detail = f"expected an option that reviewers keep, {', '.join(said)} deleted {text[:80]!r}"
            refs = (("clip", row["image_sha256"]), *(("annotator", reviewer) for reviewer in who))
            rejects.append(
                (OPTIONS.name, Reject(row["thread_key"], "option_deleted", detail, "", None, made_from=refs))
            )
            reviewers |= dict.fromkeys(who)
        row = only_options(row, set(options_of(row)) - gone.keys())
        contents.append(content_of(row))
    return Left(row, tuple(contents), rejects, tuple(reviewers))
