"""What reading a forum leaves for the steps after it: threads, first-level comments and images. None is published.

Ids are salted hashes and texts are scrubbed (`tasks/text/anonymity.py`): no name, id, link or address of the dump is in
any of these tables. They lie in a stage's `work` folder, in the order of their keys.
"""

from __future__ import annotations

import pyarrow as pa

from earmark.schemas.tables import column, flag, integer, number, text

THREADS = pa.schema(
    [
        text("thread_key", "The submission: sixteen hexadecimal digits, a salted hash of its id."),
        text("author_key", "Its author, likewise; null where the account is gone.", optional=True),
        text("subreddit", "The forum, in lower case."),
        integer("year", "Year of the submission, UTC."),
        text("title", "Title, scrubbed."),
        text("text", "Text, scrubbed; empty where there was none."),
        integer("words", "Words of title and text before they were scrubbed."),
        integer("comments", "First-level comments that were kept."),
        text("image_from", "Where its images come from.", unit="direct, gallery, page, preview or text"),
    ]
)  # `threads.parquet`: one row a submission that passed the filter

COMMENTS = pa.schema(
    [
        text("thread_key", "The submission."),
        text("comment_key", "The comment: sixteen hexadecimal digits, a salted hash of its id."),
        text("author_key", "Its author, likewise; null where the account is gone.", optional=True),
        integer("place", "Place among the thread's comments, from 1: by score, then by key."),
        text("text", "Body, scrubbed."),
        integer("words", "Words of the scrubbed body."),
        integer("score", "S = U - D: ups minus downs where the dump has both, else its `score`."),
    ]
)  # `comments.parquet`: one row a first-level comment of those threads

BOX = pa.struct([("left", pa.int64()), ("top", pa.int64()), ("width", pa.int64()), ("height", pa.int64())])
BOXES = pa.list_(pa.field("element", BOX))

IMAGES = pa.schema(
    [
        text("thread_key", "The submission."),
        integer("place", "Place among the submission's images, from 1."),
        text("image_sha256", "SHA-256 of the re-encoded file `images/<image_sha256>.<extension>`."),
        text("extension", "Format of the re-encoded file.", unit="png or jpg"),
        integer("width", "Width.", unit="pixels"),
        integer("height", "Height.", unit="pixels"),
        text("difference_hash", "256-bit difference hash, hexadecimal: near images differ in few bits."),
        text("detector", "What looked for staves: `staff-lines`, or the detection model's name."),
        number("score_confidence", "How sure the detector is that it is a score.", unit="0 to 1"),
        flag("is_score", "Whether that reaches the config's `detector.least`."),
        text("kind", "Class of what the detector is surest of; empty where it found nothing."),
        column("staves", BOXES, "What was detected, in pixels of the re-encoded image, from top to bottom."),
    ]
)  # `images.parquet`: one row an image that could be used; threads without a score among them are rejects
