"""What reading a forum leaves for the steps after it: threads, first-level comments and images. None is published.

Ids are salted hashes and texts are scrubbed (`tasks/text/anonymity.py`): no name, id, link or address of the dump is in
any of these tables. They lie in a stage's `work` folder, in the order of their keys.
"""

from __future__ import annotations

import pyarrow as pa

from earmark.schemas.tables import column

THREADS = pa.schema(
    [
        column("thread_key", pa.string(), "The submission: sixteen hexadecimal digits, a salted hash of its id."),
        column("author_key", pa.string(), "Its author, likewise; null where the account is gone.", optional=True),
        column("subreddit", pa.string(), "The forum, in lower case."),
        column("year", pa.int64(), "Year of the submission, UTC."),
        column("title", pa.string(), "Title, scrubbed."),
        column("text", pa.string(), "Text, scrubbed; empty where there was none."),
        column("words", pa.int64(), "Words of title and text before they were scrubbed."),
        column("comments", pa.int64(), "First-level comments that were kept."),
        column("image_from", pa.string(), "Where its images come from.", unit="direct, gallery or preview"),
    ]
)  # `threads.parquet`: one row a submission that passed the filter

COMMENTS = pa.schema(
    [
        column("thread_key", pa.string(), "The submission."),
        column("comment_key", pa.string(), "The comment: sixteen hexadecimal digits, a salted hash of its id."),
        column("author_key", pa.string(), "Its author, likewise; null where the account is gone.", optional=True),
        column("place", pa.int64(), "Place among the thread's comments, from 1: by score, then by key."),
        column("text", pa.string(), "Body, scrubbed."),
        column("words", pa.int64(), "Words of the scrubbed body."),
        column("score", pa.int64(), "S = U - D: ups minus downs where the dump has both, else its `score`."),
    ]
)  # `comments.parquet`: one row a first-level comment of those threads

BOX = pa.struct([("left", pa.int64()), ("top", pa.int64()), ("width", pa.int64()), ("height", pa.int64())])
BOXES = pa.list_(pa.field("element", BOX))

IMAGES = pa.schema(
    [
        column("thread_key", pa.string(), "The submission."),
        column("place", pa.int64(), "Place among the submission's images, from 1."),
        column("image_sha256", pa.string(), "SHA-256 of the re-encoded file `images/<image_sha256>.<extension>`."),
        column("extension", pa.string(), "Format of the re-encoded file.", unit="png or jpg"),
        column("width", pa.int64(), "Width.", unit="pixels"),
        column("height", pa.int64(), "Height.", unit="pixels"),
        column("difference_hash", pa.string(), "256-bit difference hash, hexadecimal: near images differ in few bits."),
        column("detector", pa.string(), "What looked for staves: `staff-lines`, or the detection model's name."),
        column("score_confidence", pa.float64(), "How sure the detector is that it is a score.", unit="0 to 1"),
        column("is_score", pa.bool_(), "Whether that reaches the config's `detector.least`."),
        column("staves", BOXES, "What was detected, in pixels of the re-encoded image, from top to bottom."),
    ]
)  # `images.parquet`: one row an image that could be used; threads without a score among them are rejects
