"""Declare the unpublished tables of a forum for later steps: threads, first-level comments and images.

Ids are salted hashes and texts are scrubbed (`tasks/text/anonymity.py`): no name, id, link or address of the dump is in
any of these tables. They lie in a stage's `work` folder, in the order of their keys.
"""

from typing import Annotated, TypedDict

from earmark.schemas.tables import Column, columns


class ForumThread(TypedDict):
    """One row a submission that passed the filter (`threads.parquet`)."""

    thread_key: Annotated[str, "The submission: sixteen hexadecimal digits, a salted hash of its id."]
    author_key: Annotated[str | None, "Its author, likewise; null where the account is gone."]
    subreddit: Annotated[str, "The forum, in lower case."]
    year: Annotated[int, "Year of the submission, UTC."]
    title: Annotated[str, "Title, scrubbed."]
    text: Annotated[str, "Text, scrubbed; empty where there was none."]
    words: Annotated[int, "Words of title and text before they were scrubbed."]
    comments: Annotated[int, "First-level comments that were kept."]
    image_from: Annotated[str, Column("Where its images come from.", unit="direct, gallery, page, preview or text")]


class ForumComment(TypedDict):
    """One row a first-level comment of those threads (`comments.parquet`)."""

    thread_key: Annotated[str, "The submission."]
    comment_key: Annotated[str, "The comment: sixteen hexadecimal digits, a salted hash of its id."]
    author_key: Annotated[str | None, "Its author, likewise; null where the account is gone."]
    place: Annotated[int, "Place among the thread's comments, from 1: by score, then by key."]
    text: Annotated[str, "Body, scrubbed."]
    words: Annotated[int, "Words of the scrubbed body."]
    score: Annotated[int, "S = U - D: ups minus downs where the dump has both, else its `score`."]
    unripe: Annotated[
        bool, "Whether its votes were hidden, or counted within a day of its writing: they decide nothing."
    ]


class Box(TypedDict):
    """A rectangle, in pixels."""

    left: int
    top: int
    width: int
    height: int


class ForumImage(TypedDict):
    """One row an image that could be used; threads without a score among them are rejects (`images.parquet`)."""

    thread_key: Annotated[str, "The submission."]
    place: Annotated[int, "Place among the submission's images, from 1."]
    image_sha256: Annotated[str, "SHA-256 of the re-encoded file `images/<image_sha256>.<extension>`."]
    extension: Annotated[str, Column("Format of the re-encoded file.", unit="png or jpg")]
    width: Annotated[int, Column("Width.", unit="pixels")]
    height: Annotated[int, Column("Height.", unit="pixels")]
    difference_hash: Annotated[str, "256-bit difference hash, hexadecimal: near images differ in few bits."]
    detector: Annotated[str, "What looked for staves: `staff-lines`, or the detection model's name."]
    score_confidence: Annotated[float, Column("How sure the detector is that it is a score.", unit="0 to 1")]
    is_score: Annotated[bool, "Whether that reaches the config's `detector.least`."]
    kind: Annotated[str, "Class of what the detector is surest of; empty where it found nothing."]
    staves: Annotated[list[Box], "What was detected, in pixels of the re-encoded image, from top to bottom."]


THREADS = columns(ForumThread)
COMMENTS = columns(ForumComment)
IMAGES = columns(ForumImage)
