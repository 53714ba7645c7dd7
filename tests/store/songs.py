"""Two small corpora, one made from the other, whose rows are withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.tables import AUDIO, REJECTS, Table, column
from earmark.tasks.release import withdrawal
from earmark.tasks.store.commit import Made, commit
from earmark.tasks.store.manifest import Parent, Step
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import Store, Version
from tests.builds import rows_of

SHA = {name: name * 64 for name in "abcdef"}


def table(name: str, key: tuple[str, ...], columns: Sequence[str], **more: Any) -> Table:
    """A table of texts; a column that names things is written `column=kind` or `column=kind:role`."""
    fields = []
    for one in columns:
        column_, _, names = one.partition("=")
        kind, _, role = names.partition(":")
        given: Any = {"names": kind, "role": role or "from"}
        fields.append(column(column_, pa.string(), "A text.", optional=column_ not in key, **given))
    fields += [column("audio", AUDIO, "Audio.", optional=True)] if more.pop("audio", False) else []
    return Table(name=name, description=f"The {name}.", schema=pa.schema(fields), key=key, **more)


SONGS = (
    table(
        "clips", ("clip_id",), ("clip_id=song:is", "split", "prompt_id=prompt", "clip_sha256=clip:is", "file"),
        audio=True, files=("file",),
    ),
    table("pairs", ("pair_id",), ("pair_id=pair:is", "split", "a=song", "b=song")),
    table("votes", ("vote_id",), ("vote_id=vote:is", "split", "pair_id=pair:keeps", "annotator=annotator")),
    table("agreement", ("scope", "value"), ("scope", "value=annotator", "rate"), splits=False),
    REJECTS,
)  # fmt: skip
WORDS_OF = (
    table(
        "captions", ("caption_id",), ("caption_id=caption:is", "split", "clip_id=song", "heard_sha256=clip", "text"),
    ),
    table("raw", ("caption_id", "stage"), ("caption_id=caption", "split", "stage", "text")),
    REJECTS,
)  # fmt: skip


def corpus(name: str, tables: tuple[Table, ...]) -> Corpus:
    story = Story(name, "What it is.", ("It is made.",), tables[0].name, ("A paper.",), ("Limits.",))
    return Corpus(name, "x", "x", "x", BuildConfig, tables, story, plan="x:y", flow="x:y")


CORPORA = {"songs": corpus("songs", SONGS), "words": corpus("words", WORDS_OF)}


def clip(number: str, prompt: str) -> dict[str, Any]:
    """A clip of which the version holds the bytes, and a file."""
    sha = SHA[number]
    audio = {"bytes": f"sound of {number}".encode(), "path": f"{sha}.wav"}
    return {"clip_id": f"clip-{number}", "split": "train", "prompt_id": prompt, "clip_sha256": sha,
            "file": f"audio/{number}.wav", "audio": audio}  # fmt: skip


ROWS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "songs": {
        "clips": [clip("a", "p-one"), clip("b", "p-one"), clip("c", "p-two"), clip("d", "p-two"), clip("e", "p-two")],
        "pairs": [
            {"pair_id": "pair-ab", "split": "train", "a": "clip-a", "b": "clip-b"},
            {"pair_id": "pair-cd", "split": "train", "a": "clip-c", "b": "clip-d"},
            {"pair_id": "pair-de", "split": "train", "a": "clip-d", "b": "clip-e"},
        ],
        "votes": [
            {"vote_id": "vote-1", "split": "train", "pair_id": "pair-ab", "annotator": "ann"},
            {"vote_id": "vote-2", "split": "train", "pair_id": "pair-cd", "annotator": "ann"},
            {"vote_id": "vote-3", "split": "train", "pair_id": "pair-cd", "annotator": "bob"},
            {"vote_id": "vote-4", "split": "train", "pair_id": "pair-de", "annotator": "bob"},
        ],
        "agreement": [
            {"scope": "annotator", "value": "ann", "rate": "1"},
            {"scope": "all", "value": "all", "rate": "1"},
        ],
    },
    "words": {
        "captions": [
            {"caption_id": f"cap-{n}", "split": "train", "clip_id": f"clip-{n}", "heard_sha256": SHA[h],
             "text": f"Of {n}"}
            for n, h in (("a", "a"), ("c", "c"), ("f", "d"))
        ],
        "raw": [{"caption_id": f"cap-{n}", "split": "train", "stage": "1", "text": f"Raw of {n}."} for n in "acf"],
    },
}  # fmt: skip
REFUSED: dict[str, list[tuple[str, str, str, str, dict[str, str]]]] = {
    "songs": [
        ("clips", "clip-x", "audio_too_short", "1 s", {"prompt": "p-one"}),
        ("clips", "clip-y", "audio_too_short", "like another", {"clip": SHA["c"]}),
    ],
    "words": [("captions", "of a", "bad_answer", "empty", {"song": "clip-a"})],
}


def build(store: Store, name: str, parents: tuple[Parent, ...] = (), key: str = "key") -> Version:
    """Commit the rows as a build does."""
    known = CORPORA[name]
    with staging(store, name, f"{key:0<16}", say=print) as stage:
        steps = []
        for place, one in enumerate(known.tables[:-1], 1):
            rows = ROWS[name][one.name]
            stage.write(one, "train" if one.splits else "full", [pa.Table.from_pylist(rows, one.schema)])
            steps.append(
                Step(name=one.name, place=place, unit="rows", entered=len(rows), kept=len(rows), table=one.name)
            )
        for row in ROWS[name].get("clips", []):
            path = stage.version / row["file"]
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"file " + row["audio"]["bytes"])
        refused = REFUSED[name]
        held = [
            {"table": t, "item": item, "stage": "read", "reason": reason, "detail": detail, "file": None, "line": None,
             "made_from": [{"kind": kind, "id": id_} for kind, id_ in things.items()]}
            for t, item, reason, detail, things in refused
        ]  # fmt: skip
        stage.write_rejects("read", pa.Table.from_pylist(held, REJECTS.schema))
        count: dict[str, int] = {}
        for _, _, reason, *_ in refused:
            count[reason] = count.get(reason, 0) + 1
        steps.append(
            Step(name="read", place=1, unit="lines", stage="read", entered=len(refused), kept=0, rejected=count)
        )
        for step in steps:
            stage.record(step)
        return commit(
            stage, Made(known, {}, {}, "code", {}, parents, models=(f"lab:{key}",))
        )  # equal tables, other terms


def withdraw(store: Store, kind: Any, value: str) -> None:
    withdrawal.withdraw(store, CORPORA, withdrawal.search(store, CORPORA, kind, value), "asked for")


def ids(version: Version, name: str) -> list[str]:
    """The first key column of a table's rows."""
    key = next(one.key[0] for one in CORPORA[version.corpus].tables if one.name == name)
    return [row[key] for row in rows_of(version, name)]
