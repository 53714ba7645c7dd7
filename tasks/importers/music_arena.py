"""Read Music Arena: the rows of a monthly release, and the raw battles of the running service.

A released row names both clips, or "" for withheld audio; a raw battle is a JSON object with URLs and
metadata for each clip, and the vote. A vote is A, B, TIE or BOTH_BAD.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from earmark.schemas.reasons import Note, Reject
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.json_arrays import read_documents
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import named_rows
from earmark.tasks.importers.votes import Voted, VoteLayout, author_of, each, to_votes, unread_rows

NAMES = {
    "vote_id": "battle_uuid",
    "overall": "preference",
    "audio_a": "audio_a",
    "audio_b": "audio_b",
    "model_a": "system_a",
    "model_b": "system_b",
    "text": "prompt",
    "lyrics": "lyrics",
    "instrumental": "is_instrumental",
    "annotator": "user_pseudonym",
    "date": "date",
    "timestamp": "timestamp",
    "feedback": "feedback",
    "listened_a_s": "total_listening_time_a",
    "listened_b_s": "total_listening_time_b",
}
WANTED = ("vote_id", "overall", "model_a", "model_b")
FEEDBACK = {"feedback": "General", "a_feedback": "Audio A", "b_feedback": "Audio B"}  # as the release joins them
DATES = ("vote_time", "timestamp", "date")  # of other exports; the service keeps the time in the vote and the session
FAILED = ("failed", "failure", "error", "timeout")


def read(file: ListFile, root: str) -> Voted:
    """Yield the votes of a release from its table.

    Raises:
        InputError: the file cannot be read, or a column of battle, vote or systems is missing.
    """
    wanted = {name: NAMES[name] for name in WANTED}
    rows = unread_rows(named_rows(file, wanted, {ours: theirs for ours, theirs in NAMES.items() if ours not in wanted}))
    released = ((line, row if isinstance(row, Reject | Note) else _released(dict(row))) for line, row in rows)
    yield from to_votes(file, released, root, withheld=True)


def _released(row: dict[str, Any]) -> dict[str, Any]:
    for side in ("audio_a", "audio_b"):
        if isinstance(row[side], Mapping):  # a Parquet file may embed audio: its path is the name
            row[side] = row[side].get("path")
    missing = next((side for side in ("a", "b") if not row[f"model_{side}"]), None)
    return {
        **row,
        "date": row["date"] or row["timestamp"],
        "fault": f"no system made clip {missing}" if missing else None,
    }


def read_battles(file: ListFile, root: str) -> Voted:
    """Yield the votes of raw battles: JSON lines, or a JSON object or array."""
    yield from to_votes(file, _battles(file), root, withheld=True)


def _battles(file: ListFile) -> Iterator[tuple[int, Mapping[str, Any] | Reject | Note]]:
    for line, battle in unread_rows(read_documents(file)):
        if isinstance(battle, Reject | Note):
            yield line, battle
            continue
        try:
            yield line, _battle(battle)
        except BadRow as bad:
            item = str(battle.get("uuid") or f"line {line}")[:80]
            yield line, Reject(item, bad.reason, bad.detail, file.name, line, author_of(_visitor(battle)))


def _battle(battle: Mapping[str, Any]) -> dict[str, Any]:
    prompt = {**_part(battle, "prompt"), **_part(battle, "prompt_detailed")}
    vote, session = _part(battle, "vote"), battle.get("prompt_session")
    sides = {side: _part(battle, f"{side}_metadata") for side in ("a", "b")}
    preference = vote.get("preference")
    if not vote or not preference:
        raise BadRow("no_preference", "expected a vote with a preference, found none")
    return {
        "vote_id": battle.get("uuid"),
        "annotator": _visitor(battle),
        "text": prompt.get("overall_prompt") or prompt.get("prompt"),
        "lyrics": prompt.get("lyrics"),
        "instrumental": prompt.get("instrumental"),
        "overall": preference,
        "feedback": " | ".join(f"{part}: {text}" for key, part in FEEDBACK.items() if (text := words(vote.get(key)))),
        "date": vote.get("preference_time")
        or next(filter(None, map(battle.get, DATES)), None)
        or (session.get("create_time") if isinstance(session, Mapping) else None),
        "listened_a_s": _listened(vote.get("a_listen_data")),
        "listened_b_s": _listened(vote.get("b_listen_data")),
        "fault": next((f"clip {side}: {fault}" for side, one in sides.items() if (fault := _fault(one))), None),
        **{f"audio_{side}": battle.get(f"{side}_audio_url") for side in sides},
        **{f"model_{side}": _system(one.get("system_key")) for side, one in sides.items()},
    }


def _visitor(battle: Mapping[str, Any]) -> Any:
    """Return the person, as the release names them; a session, of which a person may have several, only if need be."""
    parts = [battle.get(name) for name in ("prompt_user", "vote_user", "vote", "prompt_session")]
    asker, voter, vote, session = (part if isinstance(part, Mapping) else {} for part in parts)
    named = asker.get("salted_ip") or voter.get("salted_ip") or vote.get("user")
    return named or battle.get("user_pseudonym") or session.get("uuid")


def _part(battle: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = battle.get(name)
    if part is None or part == "":
        return {}
    if not isinstance(part, Mapping):
        raise BadRow("bad_line", f"expected an object under '{name}', found something else")
    return part


def _fault(side: Mapping[str, Any]) -> str | None:
    if not side:
        return "no metadata, so nothing was made"
    if side.get("error"):
        return "an error"
    status = str(side.get("status") or "").lower()
    return f"status {status}" if status in FAILED else None


def _system(key: Any) -> Any:
    """Return a system's name from a text, or from an object with its tag and variant."""
    if isinstance(key, Mapping):
        return ":".join(str(key[name]) for name in ("system_tag", "variant_tag") if key.get(name)) or None
    return key


def _listened(data: Any) -> float | None:
    """Sum a clip's played seconds, from each PLAY to the next event but a TICK; return None without times."""
    if not isinstance(data, list):
        return None
    total, started = 0.0, None
    for event in data:
        if not (isinstance(event, list | tuple) and len(event) == 2 and isinstance(event[1], int | float)):
            raise BadRow("bad_line", "expected events and times as listening data, found something else")
        if started is not None:
            total += max(0.0, event[1] - started)
        kind = str(event[0]).upper()
        started = event[1] if kind == "PLAY" or (kind == "TICK" and started is not None) else None
    return total


LAYOUT = register("votes.music-arena")(VoteLayout(each(read), task="music-arena", split="test", drops_ties=True))
BATTLES = register("votes.music-arena-battles")(replace(LAYOUT, read=each(read_battles), documents=True))
