"""Find answers that release 1.0.0 accepted and today's rules refuse, in a version's tables and ledger."""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import duckdb

from earmark.schemas.questions import YesNo
from earmark.tasks.annotation.answers import MARKS, Reply, yes_no
from earmark.tasks.annotation.errors import AskError
from earmark.tasks.annotation.gemini import read_generate_content
from earmark.tasks.annotation.ledger_reports import received
from earmark.tasks.annotation.openai_compatible import read_chat_completion
from earmark.tasks.store.sql import quoted, view_parquet
from earmark.tasks.store.versions import Store, Version, has_ledger, ledger_address

FENCE = r"</?[a-z][a-z0-9_-]*-[0-9a-f]{10}>"  # marks around external text in prompts
SERVED = ("openai:", "gemini:")  # annotators of 1.0.0 whose server may cut an answer short
LEAST_SHARE = 0.5
KEY = "request_key"


class Received(NamedTuple):
    """A response in the ledger, with the answer's form from its request key."""

    ask: Mapping[str, str]
    reply: Reply


def asked_models(version: Version) -> bool:
    """Return whether models other than builtin functions wrote parts of a version."""
    return any(not model.startswith("builtin:") and ":" in model for model in version.manifest.models)


def was_refused_requests(version: Version) -> bool:
    """Return whether a server refused requests of a version, whose rows became rejects."""
    return asked_models(version) and bool(version.manifest.rejects.get("bad_request"))


def holds_thoughts(version: Version) -> bool:
    """Return whether a text of a version holds a mark of thoughts or a special token."""
    return asked_models(version) and _holds(version, f"(?i){MARKS}")


def holds_fences(version: Version) -> bool:
    """Return whether a text of a version holds the marks of a prompt's fence."""
    return asked_models(version) and _holds(version, FENCE)


def holds_half_answers(version: Version) -> bool:
    """Return whether an answer of a version lacks a known end; true if the ledger lacks its answers."""
    if not any(model.startswith(SERVED) for model in version.manifest.models):
        return False
    replies = _received(version)
    return replies is None or any(one.reply.broken for one in replies)


def holds_guessed_probabilities(version: Version) -> bool:
    """Return whether a yes/no answer of a version rests on one listed token, or on a small share.

    Return true if the version asked for yes or no and the ledger lacks its answers.
    """
    if not _asks_yes_no(version):
        return False
    replies = _received(version, everything=version.corpus == "music-prompts")
    return replies is None or any(map(_guessed, replies))


def _guessed(one: Received) -> bool:
    if one.ask.keys() != {"yes", "no"}:
        return False
    try:
        value = yes_no(YesNo(one.ask["yes"], one.ask["no"]), one.reply)
    except AskError:
        return False
    return bool(value["share"] < LEAST_SHARE or (value["bounded"] and len(one.reply.first_token) == 1))


def _asks_yes_no(version: Version) -> bool:
    config = version.manifest.config
    judges = [config.get("verification"), *(one.get("judge") for one in config.get("pipelines", ()))]
    return any(judge and not judge["annotator"].startswith("builtin:") for judge in judges)


def _received(version: Version, *, everything: bool = False) -> list[Received] | None:
    """Read the responses behind a version's rows, or all of its models'; None if the ledger has none of them."""
    store = Store(version.folder.parents[1])
    if not has_ledger(store):
        return None
    models = [name for name in version.manifest.models if not name.startswith("builtin:") and ":" in name]
    keys = None if everything else _keys(version)
    rows = received(ledger_address(store), models, keys)
    return [*_read(rows)] if rows else None


def _read(rows: list[tuple[str, str, str]]) -> Iterator[Received]:
    for model, body, raw in rows:
        read = read_generate_content if model.startswith("gemini:") else read_chat_completion
        try:
            yield Received(json.loads(body)["ask"], read(raw))
        except AskError:
            continue  # unreadable now, so it was no answer then


def _keys(version: Version) -> list[str]:
    keys: set[str] = set()
    with duckdb.connect() as connection:
        for table in _tables(connection, version):
            if any(name == KEY for name, _ in _columns(connection, table)):
                rows = connection.execute(f"SELECT DISTINCT {KEY} FROM {quoted(table)}").fetchall()
                keys.update(key for (key,) in rows if key)
    return sorted(keys)


def _holds(version: Version, pattern: str) -> bool:
    with duckdb.connect() as connection:
        for table in _tables(connection, version):
            texts = [name for name, kind in _columns(connection, table) if kind.startswith("VARCHAR")]
            found = " OR ".join(f"regexp_matches({quoted(name)}::VARCHAR, $pattern)" for name in texts)
            one = f"SELECT 1 FROM {quoted(table)} WHERE {found} LIMIT 1"
            if texts and connection.execute(one, {"pattern": pattern}).fetchone():
                return True
    return False


def _tables(connection: duckdb.DuckDBPyConnection, version: Version) -> Iterator[str]:
    """Yield the tables with local files, each as a view; skip rejects, which are no rows of a version."""
    for table in version.manifest.rows:
        if table != "rejects" and (files := version.files_there(table)):
            view_parquet(connection, table, files)
            yield table


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind, *_ in connection.execute(f"DESCRIBE {quoted(table)}").fetchall()]
