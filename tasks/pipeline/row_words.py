"""Word the rows of a version by its own prompts in place of a view's wording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.errors import StoreError
from earmark.schemas.questions import Audio, Message, Text
from earmark.tasks.annotation.prompts import own_words, prompt_named, prompt_names, versions_of
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.versions import Version

WORDING = "wording"  # a view's column with a row's prompt and its values; exports omit it
_ASKED = pa.schema(
    {"id": pa.string(), "system": pa.string(), "prompt": pa.list_(pa.string()), "audios": pa.list_(pa.string())}
)


def words_of(version: Version, chosen: Mapping[str, Path | int] | None = None) -> dict[str, Path | int]:
    """Return a version's own prompts and older package prompts from its build; `chosen` takes precedence.

    Raises:
        StoreError: a file of the version differs from its manifest.
    """
    words: dict[str, Path | int] = {}
    for one, sha256 in version.manifest.prompts.items():
        name, _, which = one.partition("@")
        if name not in prompt_names():
            continue
        if which.startswith("own-"):
            words[name] = path = version.folder / "prompts" / f"{one}.md"
            if not path.is_file() or sha256_file(path) != sha256:
                raise StoreError(f"{version.corpus} {version.name}: prompts/{one}.md is not the file of the manifest")
        elif which.isdecimal() and int(which) in versions_of(name)[:-1]:
            words[name] = int(which)
    return {**words, **(chosen or {})}


def word(connection: duckdb.DuckDBPyConnection, view: str, words: Mapping[str, Path | int]) -> None:
    """Reword rows of the table `everything` whose `wording` names a prompt with own words.

    Replace `prompt` and `audios` by the prompt rendered for the row, and set `system` to its system turn.

    Raises:
        StoreError: the prompt has other turns than a system's and a user's.
    """
    with own_words(words) as chosen:
        if mine := [name for name, prompt in chosen.items() if prompt.own]:
            query = f"SELECT id, audios, {WORDING} FROM everything WHERE {WORDING}.prompt IN (SELECT unnest($mine))"
            found = connection.sql(query, params={"mine": mine}).to_arrow_table().to_pylist()
            asked = pa.Table.from_pylist([_asked(view, row) for row in found], _ASKED)
            connection.register("asked_in_own_words", asked)
            connection.execute(
                """CREATE OR REPLACE TABLE everything AS
                   SELECT e.* REPLACE (coalesce(a.prompt, e.prompt) AS prompt, coalesce(a.audios, e.audios) AS audios),
                       a.system FROM everything e LEFT JOIN asked_in_own_words a USING (id)"""
            )
    connection.execute(f"ALTER TABLE everything DROP COLUMN {WORDING}")


def _asked(view: str, row: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(row[WORDING])
    prompt = prompt_named(values.pop("prompt"))
    clips = zip(values.pop("clips"), (Audio(clip or "", "") for clip in row["audios"]), strict=True)
    messages = prompt.render(**dict(clips), **values)
    if [one.role for one in messages] not in (["user"], ["system", "user"]):
        raise StoreError(f"view '{view}': {prompt.id}: expected a system turn at most and one user turn")
    pieces, audios = [""], list[str]()
    for part in messages[-1].parts:
        if isinstance(part, Text):
            pieces[-1] += part.text
        elif isinstance(part, Audio):
            audios.append(part.sha256)
            pieces.append("")
    return {"id": row["id"], "system": _system(messages[:-1]), "prompt": pieces, "audios": audios}


def _system(messages: Iterable[Message]) -> str | None:
    texts = [part.text for one in messages for part in one.parts if isinstance(part, Text)]
    return "\n".join(texts) or None
