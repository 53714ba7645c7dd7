"""What a score's image says in another form: a caption, ABC or MusicXML, brought as files named by the image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.files import NotAFile, Root, read_regular
from earmark.schemas.score_questions import TRANSCRIPTS
from earmark.tasks.build.step import Account
from earmark.tasks.importers.rows import Reject

FORMS = {".txt": "caption", ".abc": "abc", ".musicxml": "musicxml", ".xml": "musicxml"}
LONGEST = 200_000  # characters: what a model reads beside a question

Row = dict[str, Any]


def read_transcripts(folder: Path, written: str, questions: Iterable[Row], source: str) -> tuple[list[Row], Account]:
    """The transcripts of questions' images, by question and form, and what became of the files that name them.

    Args:
        folder: where `<image_sha256>.<ending>` lie, the endings of `FORMS`; other files there are passed over.
        questions: rows with `thread_key`, `split` and `image_sha256`.
        source: of the rows.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"transcripts: expected a folder, found none at {written}")
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in FORMS:
            files.setdefault(path.stem, []).append(path)
    rows, rejects, root = [], [], Root(folder, "refuse")
    for question in sorted(questions, key=lambda row: row["thread_key"]):
        seen: set[str] = set()
        for path in files.pop(question["image_sha256"], ()):
            form = FORMS[path.suffix.lower()]
            text = _text(path, root)
            if form in seen:
                text = Reject("", "duplicate_file_name", f"expected one {form} of an image, found another", "", None)
            seen.add(form)
            if isinstance(text, Reject):
                item = f"{question['thread_key']}/{form}"
                of = (("clip", question["image_sha256"]), ("question", question["thread_key"]))  # leave together
                reject = text._replace(item=item, source_file=f"{source}/{path.name}", made_from=of)
                rejects.append((TRANSCRIPTS.name, reject))
                continue
            about = {name: question[name] for name in ("split", "image_sha256")}
            rows.append({"question_id": question["thread_key"], **about, "form": form, "text": text, "source": source})
    strangers = sum(map(len, files.values()))
    return rows, Account(
        entered=len(rows) + len(rejects),
        kept=len(rows),
        rejects=rejects,
        name="transcripts",
        unit="transcripts",
        table=TRANSCRIPTS.name,
        notes=[_note(rows), *([f"{strangers:,} files are of images that no question has"] if strangers else [])],
    )


def _note(rows: Sequence[Row]) -> str:
    counts = Counter(row["form"] for row in rows)
    return ", ".join(f"{many:,} as {form}" for form, many in sorted(counts.items())) or "no image has a transcript"


def _text(path: Path, root: Root) -> str | Reject:
    if root.leads_out(path):
        return Reject("", "not_a_file", "expected a file in the folder, found a link out of it", "", None)
    try:
        content = read_regular(path)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Reject("", "bad_encoding", "expected UTF-8 text, found other bytes", "", None)
    except (NotAFile, IsADirectoryError) as error:
        return Reject("", "not_a_file", f"expected a file, found: {error.strerror}", "", None)
    if not text.strip():
        return Reject("", "empty", "expected text, found none", "", None)
    if len(text) > LONGEST:
        return Reject("", "text_too_long", f"expected at most {LONGEST:,} characters, found {len(text):,}", "", None)
    return text
