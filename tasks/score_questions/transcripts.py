"""Read transcripts of score images (caption, ABC or MusicXML) from files named by the image."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from earmark.schemas.errors import InputError
from earmark.schemas.files import NotAFile, Root, read_regular
from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import TRANSCRIPTS, ScoreQuestions
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.step import Account
from earmark.tasks.score_questions.rows import LetteredQuestion

FORMS = {".txt": "caption", ".abc": "abc", ".musicxml": "musicxml", ".xml": "musicxml"}
LONGEST = 200_000  # characters: a model reads them beside a question


def read_transcripts(config: ScoreQuestions, questions: Sequence[LetteredQuestion]) -> tuple[list[Row], list[Account]]:
    """Read the transcripts of questions' images, by question and form, and account for their files.

    `<image_sha256>.<ending>` lie in the config's folder, the endings of `FORMS`; other files there are ignored.

    Args:
        questions: of any split.
    """
    if config.transcripts is None:
        return [], []
    folder, source = config.path(config.transcripts), config.source.name
    if not folder.is_dir():
        raise InputError(f"transcripts: expected a folder, found none at {config.transcripts}")
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in FORMS:
            files.setdefault(path.stem, []).append(path)
    rows, rejects, root = [], [], Root(folder)
    for question in sorted(questions, key=lambda row: row["thread_key"]):
        seen: set[str] = set()
        for path in files.pop(question["image_sha256"], ()):
            form = FORMS[path.suffix.lower()]
            about = {"question_id": question["thread_key"], "image_sha256": question["image_sha256"], "form": form}
            try:
                if form in seen:
                    raise BadRow("duplicate_id", f"expected one {form} of an image, found another")
                seen.add(form)
                rows.append({**about, "split": question["split"], "text": _text(path, root), "source": source})
            except BadRow as bad:
                item, file = f"{question['thread_key']}/{form}", f"{source}/{path.name}"
                of = (("clip", question["image_sha256"]), ("question", question["thread_key"]))  # leave together
                rejects.append((TRANSCRIPTS.name, Reject(item, bad.reason, bad.detail, file, None, made_from=of)))
    strangers = sum(map(len, files.values()))
    forms = sorted(Counter(row["form"] for row in rows).items())
    notes = [", ".join(f"{many:,} as {form}" for form, many in forms) or "no image has a transcript"]
    notes += [f"{strangers:,} files are of images that no question has"] if strangers else []
    entered = len(rows) + len(rejects)
    account = Account(
        entered, len(rows), rejects, name="transcripts", unit="transcripts", table=TRANSCRIPTS.name, notes=notes
    )
    return rows, [account]


def _text(path: Path, root: Root) -> str:
    if root.leads_out(path):
        raise BadRow("file_unreadable", "expected a file in the folder, found a link out of it")
    try:
        text = read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadRow("bad_encoding", "expected UTF-8 text, found other bytes") from None
    except (NotAFile, IsADirectoryError) as error:
        raise BadRow("file_unreadable", f"expected a file, found: {error.strerror}") from None
    if not text.strip():
        raise BadRow("empty", "expected text, found none")
    if len(text) > LONGEST:
        raise BadRow("bad_value", f"expected at most {LONGEST:,} characters, found {len(text):,}")
    return text
