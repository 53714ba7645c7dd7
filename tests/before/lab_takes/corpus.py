"""The corpus `studio-takes`: its config, its table, its declaration."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import Field

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.tables import REJECTS, Table, column


class StudioTakes(BuildConfig):
    """Build config of `studio-takes`."""

    corpus: Literal["studio-takes"] = Field(default="studio-takes", description="The corpus to build.")
    sheet: str = Field(description="A CSV file: take, clip, verdict.")


TAKES = Table(
    name="takes",
    description="One row a take, with the engineer's verdict.",
    schema=pa.schema(
        [
            column("take_id", pa.string(), "The take."),
            column("clip", pa.string(), "Its file, seen from the sheet."),
            column("verdict", pa.string(), "keep or drop."),
            column("duration_s", pa.float64(), "Length.", unit="s"),
            column("split", pa.string(), "Always train."),
        ]
    ),
    key=("take_id",),
)
STORY = Story(
    "Studio takes",
    "Takes of a session, with verdicts.",
    ("The sheet is read, and each take's clip is measured.",),
    "takes",
    (),
    ("Verdicts are one engineer's.",),
)
CORPUS = Corpus(
    name="studio-takes",
    source="sheet",
    holds="takes",
    paper="none",
    config=StudioTakes,
    tables=(TAKES, REJECTS),
    story=STORY,
    plan="lab_takes.steps:plan_build",
    flow="lab_takes.flow:build",
)
