"""Read Label Studio's JSON export of pairs compared in the project in `deploy/label-studio/`.

A task's `data` holds `audio_a`, `audio_b` and the prompt; each of its annotations is a vote, whose `result` has an
entry for each question: `musicality` and `alignment` (A, B or tie), their confidences (1 to 5), and `feedback`.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.json_arrays import read_documents
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.votes import DIMENSIONS, Voted, VoteLayout, author_of, each, to_votes, unread_rows

DATA = {name: name for name in ("prompt_id", "lyrics", "model_a", "model_b", "instrumental", "split")} | {
    "text": "prompt"
}
ANSWERS = {"choices": "choices", "rating": "rating", "textarea": "text", "number": "number"}


def read(file: ListFile, root: str) -> Voted:
    """Yield the votes of an export, one for each annotation; count tasks without annotations in a note.

    Raises:
        InputError: the file cannot be read.
    """
    yield from to_votes(file, _annotations(file), root)


def _annotations(file: ListFile) -> Iterator[tuple[int, Mapping[str, Any] | Reject | Note]]:
    empty = 0
    for line, task in unread_rows(read_documents(file)):
        if isinstance(task, Reject | Note):
            yield line, task
            continue
        data, done = task.get("data"), task.get("annotations", task.get("completions"))
        if not isinstance(data, dict) or not isinstance(done, list):
            detail = "expected a task with data and annotations, found none; export as JSON, not as JSON-MIN"
            yield line, Reject(f"task {shown(task.get('id'))}", "bad_line", detail, file.name, line)
            continue
        empty += not done
        for annotation in done:
            try:
                yield line, _vote(data, annotation, task.get("id"))
            except BadRow as bad:
                item = f"task {shown(task.get('id'))}"
                yield line, Reject(item, bad.reason, bad.detail, file.name, line, author_of(_annotator(annotation)))
    if empty:
        yield 0, Note(f"{file.name}: {empty} tasks have no annotation yet")


def _vote(data: Mapping[str, Any], annotation: Any, task: Any) -> dict[str, Any]:
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        raise BadRow("bad_line", "expected an annotation with a result, found something else")
    if annotation.get("was_cancelled"):
        raise BadRow("skipped", "expected a vote, found a task that the annotator skipped")
    answers = dict(_answer(entry) for entry in annotation["result"])
    return {
        **{ours: data.get(theirs) for ours, theirs in DATA.items()},
        "audio_a": _file(data.get("audio_a")),
        "audio_b": _file(data.get("audio_b")),
        "reference": _file(data.get("reference_audio")),
        "vote_id": f"{task}-{annotation.get('id')}" if annotation.get("id") is not None else None,
        "annotator": _annotator(annotation),
        "date": annotation.get("created_at"),
        "feedback": answers.get("feedback"),
        **{name: answers.get(name) for name in DIMENSIONS},
        **{f"confidence_{name}": answers.get(f"confidence_{name}") for name in DIMENSIONS},
    }


def _annotator(annotation: Any) -> Any:
    who = annotation.get("completed_by") if isinstance(annotation, dict) else None
    return who.get("id") or who.get("email") if isinstance(who, dict) else who


def _answer(entry: Any) -> tuple[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), dict):
        raise BadRow("bad_line", "expected answers with a value, found something else")
    kind = ANSWERS.get(str(entry.get("type")))
    value = entry["value"].get(kind) if kind else None
    if isinstance(value, list):
        value = "\n".join(str(one) for one in value) if kind == "text" else value[0] if len(value) == 1 else None
        if value is None:
            raise BadRow("bad_value", f"expected one choice for {shown(entry.get('from_name'))}, found several")
    return str(entry.get("from_name")), value


def _file(url: Any) -> Any:
    """Return the path in a URL of Label Studio's local storage (`/data/local-files/?d=…`) or upload; else the input."""
    if not isinstance(url, str):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL: the reader of paths judges it as a path
        return url
    if parts.path.rstrip("/").endswith("/data/local-files"):
        return (parse_qs(parts.query).get("d") or [""])[0]
    if parts.path.startswith("/data/upload/"):
        return unquote(parts.path.removeprefix("/data/"))
    return url


LAYOUT = register("votes.label-studio")(VoteLayout(each(read), documents=True))
