"""The corpus `tempos`: its config, its tables, its declaration."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from earmark.plugins import (
    DECIDES,
    REJECTS,
    AnnotatorConfig,
    BuildConfig,
    Corpus,
    Evaluation,
    Reason,
    Start,
    Story,
    Table,
    View,
    add_reasons,
    column,
    without_place,
)


class Tempos(BuildConfig):
    """Build config of `tempos`."""

    corpus: Literal["tempos"] = Field(default="tempos", description="The corpus to build.")
    notes: str = Field(description="A CSV file: id, text, bpm.")
    judge: AnnotatorConfig = Field(description="Who says whether a piece is fast.")

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Who is asked, by role."""
        return {"judge": self.judge}

    def identity(self) -> dict[str, Any]:
        """What decides the rows: neither the folder of the notes, nor the address of the model."""
        values = super().identity()
        values["notes"] = without_place(self.notes)
        values["judge"] = {name: values["judge"][name] for name in DECIDES}
        return values


NOTES = Table(
    name="notes",
    description="One row a piece: what somebody noted of it, and its tempo.",
    schema=pa.schema(
        [
            column("note_id", pa.string(), "The piece."),
            column("text", pa.string(), "The note."),
            column("bpm", pa.float64(), "Tempo.", unit="beats a minute"),
            column("pace", pa.string(), "slow or fast, as a model says."),
            column("split", pa.string(), "Always train."),
        ]
    ),
    key=("note_id",),
)

add_reasons({"too_fast": Reason("rule", ())})
CORPUS = Corpus(
    name="tempos",
    source="notes",
    holds="tempos",
    paper="none",
    config=Tempos,
    tables=(NOTES, REJECTS),
    story=Story(
        "Tempos",
        "Notes and tempos.",
        ("Notes are read; a model says of each how fast the piece is.",),
        "notes",
        (),
        ("It is a test.",),
        tasks=("text-classification",),
    ),
    plan="earmark_tempos.steps:plan_build",
    inputs="earmark_tempos.steps:inputs",
    flow="earmark_tempos.flow:build",
    start=Start(("notes",), "\nnotes = {file}\n", ("judge",)),
    views=(View("notes", "rows", "earmark_tempos/notes", "The notes as they are."),),
    evaluations=(
        Evaluation("bpm", "scalar", "earmark_tempos/tempos", "How fast is the piece?"),
        Evaluation("tempo", "tempo", "earmark_tempos/tempos", "Is the tempo right?"),
    ),
)
