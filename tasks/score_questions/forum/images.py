"""Find or download the images of threads, re-encode them, detect staves, and drop near-duplicates."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from earmark.schemas.errors import InputError
from earmark.schemas.files import FOLLOW, NotAFile, open_regular, source_root
from earmark.schemas.forum import IMAGES, Box, ForumImage
from earmark.schemas.places import without_place
from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import QUESTIONS, ScoreQuestions
from earmark.schemas.tables import WholeFile
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.references import kept_splits
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.score_questions.forum.detection import Sight, open_detector
from earmark.tasks.score_questions.forum.download import Cache, Gate, download
from earmark.tasks.score_questions.forum.dump import set_variables
from earmark.tasks.score_questions.forum.links import PicturedThread, image_links, images_in
from earmark.tasks.score_questions.forum.pictures import (
    LARGEST_BYTES,
    StoredImage,
    is_same_picture,
    near_duplicates,
    read_picture,
)
from earmark.tasks.score_questions.forum.threads import THREADS_ENTER
from earmark.tasks.score_questions.released import LAYOUT, read
from earmark.tasks.score_questions.review_files import questions_of
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.anonymity import SALT, salt_of

DOWNLOADED = "forum-images"  # the store's folder of downloads
THE_WEB = Gate()
AT_ONCE = 4  # images decoded side by side
MOST_IMAGES = 4  # of a submission; further ones of a gallery seldom belong to its question
NEAR_BITS = 12  # of 256 of a difference hash: other encodings and sizes of an image stay below

Row = dict[str, Any]
Lost: TypeAlias = tuple[str, Reject]


@dataclass(frozen=True)
class ThreadImage:
    """An image named by a thread."""

    thread: PicturedThread
    place: int  # place among the thread's images, from 1
    where: Path | BadRow  # its file, or its fault


@step("images", unit="images", label="")
def find_scores(
    stage: Stage, config: ScoreQuestions, threads: Path, candidates: Path, gate: Gate = THE_WEB
) -> Done[Path]:
    """Get the threads' images, re-encode them, and detect scores: `images.parquet` (`schemas/forum.py`).

    A dry run gets none: it assumes a score in every thread.

    Args:
        candidates: the submissions, with the images' links.
        gate: rules for downloads.

    Raises:
        InputError: the folder of images is missing.
    """
    pictured = _pictured(stage, config, threads, candidates)
    if stage.forecast is not None:
        return Done(_keep(stage, [_imagined(thread["thread_key"]) for thread in pictured]))
    named = _from_folder(config, pictured) if config.images else _from_web(stage, config, pictured, gate)
    rows, refused = _look_at(stage, config, named)
    kept_out, missing = _kept_out(stage, config)
    rows, near = _without_near(rows, NEAR_BITS, image_folder(stage), kept_out)
    scores = sum(row["is_score"] for row in rows)
    return Done(
        _keep(stage, rows),
        Account(
            entered=len(named),
            kept=len(rows),
            rejects=[*refused, *near],
            # a failed download may succeed in another build: it is no fault of the config's files
            sources={config.images: len(named)} if config.images else None,
            notes=[
                f"{scores:,} of {len(rows):,} images are scores by {without_place(config.detector.model)}"
                f"{_kinds(rows)}",
                *missing,
            ],
        ),
        _account(pictured, rows, {item.thread["thread_key"] for item in named}),
    )


def _kinds(rows: Sequence[ForumImage]) -> str:
    """Count the images of each kind, counted as scores or not, if a model has several kinds."""
    if len({row["kind"] for row in rows} - {""}) < 2:
        return ""
    counts = [
        Counter(row["kind"] or "nothing" for row in rows if row["is_score"] is is_score) for is_score in (True, False)
    ]
    counted, others = (", ".join(f"{many:,} {kind}" for kind, many in sorted(count.items())) for count in counts)
    return f" ({counted or 'none'}); the others: {others or 'none'}"


def image_folder(stage: Stage) -> Path:
    """Return the folder of images named `<SHA-256>.<extension>`."""
    return stage.work / "images"


def _keep(stage: Stage, rows: list[ForumImage]) -> Path:
    path = stage.work / "images.parquet"
    with replacing(path) as new:
        pq.write_table(pa.Table.from_pylist(rows, IMAGES), new)
    return path


def _imagined(thread_key: str) -> ForumImage:
    """Return a score's image assumed unseen in a dry run."""
    return {
        "thread_key": thread_key, "place": 1, "image_sha256": thread_key * 4, "extension": "png", "is_score": True,
        "width": 0, "height": 0, "difference_hash": "", "detector": "", "score_confidence": 0.0, "kind": "",
        "staves": [],
    }  # fmt: skip


def _pictured(stage: Stage, config: ScoreQuestions, threads: Path, candidates: Path) -> list[PicturedThread]:
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "threads", [threads])
        view_parquet(connection, "candidates", [candidates])
        set_variables(connection, {"salt": salt_of(SALT, stage.store.root)})
        rows: list[PicturedThread] = connection.sql(query("score_questions/pictured")).to_arrow_table().to_pylist()
    return rows


def _from_folder(config: ScoreQuestions, threads: Sequence[PicturedThread]) -> list[ThreadImage]:
    assert config.images is not None
    folder = config.path(config.images)
    if not folder.is_dir():
        raise InputError(f"images: expected a folder, found none at {config.images}")
    files = images_in(folder, [thread["id"] for thread in threads])
    missing = BadRow("file_missing", "expected a file named by the submission in the folder of images, found none")
    root = source_root(folder)
    outside = BadRow("link_outside_root", f"expected a file in the folder, found a link out of it; {FOLLOW} allows it")
    named: list[ThreadImage] = []
    for thread in threads:
        places: Sequence[Path | BadRow] = [
            outside if root.leads_out(path) else path for path in files.get(thread["id"], ())
        ] or [missing]
        named += [ThreadImage(thread, place, where) for place, where in enumerate(places[:MOST_IMAGES], 1)]
    return named


def _from_web(stage: Stage, config: ScoreQuestions, threads: Sequence[PicturedThread], gate: Gate) -> list[ThreadImage]:
    links = [(thread, image_links(thread)[:MOST_IMAGES]) for thread in threads]
    wanted = [link for _, named in links for link in named]
    with working("download images", len(dict.fromkeys(wanted))) as work:
        cache = Cache(stage.store.root / DOWNLOADED)
        cache.tidy()
        files = download(wanted, cache, gate, seen=work.advance)
    found: list[ThreadImage] = []
    for thread, named in links:
        lost: BadRow | None = None  # the next image would stand for the thread until another build gets this one
        for place, link in enumerate(named, 1):
            where = lost or files[link]
            found.append(ThreadImage(thread, place, where))
            if isinstance(where, BadRow) and where.reason == "download_failed" and lost is None:
                why = f"expected the thread's earlier images, found {place} not downloaded; another build asks again"
                lost = BadRow(where.reason, why)
    return found


def _look_at(stage: Stage, config: ScoreQuestions, named: Sequence[ThreadImage]) -> tuple[list[ForumImage], list[Lost]]:
    """Decode, write and examine every image; return rows of `images` with their hashes, and rejects."""
    folder = image_folder(stage)
    folder.mkdir(parents=True, exist_ok=True)
    look = open_detector(config.detector, config.base)

    def one(item: ThreadImage) -> ForumImage | Lost:
        try:
            picture = read_picture(_content(item.where))
        except BadRow as why:
            return _reject(item.thread["thread_key"], item.place, why)
        path = folder / f"{picture.sha256}.{picture.extension}"
        if not path.is_file():
            with replacing(path) as temporary:
                temporary.write_bytes(picture.content)
        return _row(item, picture, look(picture.image), config)

    rows: list[ForumImage] = []
    refused: list[Lost] = []
    with working("look at images", len(named)) as work, ThreadPoolExecutor(AT_ONCE) as pool:
        for row in pool.map(one, named):
            if isinstance(row, tuple):
                refused.append(row)
            else:
                rows.append(row)
            work.advance()
    return rows, refused


def _content(where: Path | BadRow) -> bytes:
    if isinstance(where, BadRow):
        raise where
    try:
        with BufferedReader(open_regular(where)) as file:
            return file.read(LARGEST_BYTES + 1)
    except (NotAFile, IsADirectoryError) as error:
        raise BadRow("file_unreadable", f"expected an image file, found: {error.strerror}") from None
    except OSError as error:
        raise BadRow("file_missing", f"expected a file that can be read, found: {error.strerror}") from None


def _row(item: ThreadImage, picture: StoredImage, sight: Sight, config: ScoreQuestions) -> ForumImage:
    return {
        "thread_key": item.thread["thread_key"],
        "place": item.place,
        "image_sha256": picture.sha256,
        "extension": picture.extension,
        "width": picture.image.width,
        "height": picture.image.height,
        "difference_hash": picture.difference_hash.hex(),
        "detector": without_place(config.detector.model),
        "score_confidence": sight.confidence,
        "is_score": sight.confidence >= config.detector.least,
        "kind": sight.kind,
        "staves": [Box(left=box[0], top=box[1], width=box[2], height=box[3]) for box in sight.boxes],
    }


def _kept_out(stage: Stage, config: ScoreQuestions) -> tuple[list[tuple[bytes, Path]], list[str]]:
    """Return hash and file of each picture of the questions in `decontaminate.against`, and notes on missing ones."""
    if (rule := config.decontaminate) is None:
        return [], []
    folder = image_folder(stage) / "kept-out"
    folder.mkdir(parents=True, exist_ok=True)
    released = (read(config.path(name), folder)[QUESTIONS.name] for form, name in rule.releases if form == LAYOUT)
    theirs: list[WholeFile | None] = [row["image"] for rows in released for row in rows]
    ours = [
        row["image"]
        for version in map(stage.store.find, rule.versions)
        if version.corpus == config.corpus
        for row in questions_of(version, ["split", "image"])
        if row["split"] in kept_splits(version)
    ]
    kept, unread = list[tuple[bytes, Path]](), set[bytes]()
    for content in dict.fromkeys(image["bytes"] for image in [*theirs, *ours] if image):
        try:
            picture = read_picture(content)
        except BadRow:  # such a picture is none of a question here
            unread.add(content)
            continue
        path = folder / f"{picture.sha256}.{picture.extension}"
        path.write_bytes(picture.content)
        kept.append((picture.difference_hash, path))
    lost = sum(image is None or image["bytes"] in unread for image in theirs)
    if theirs and lost == len(theirs):
        raise InputError(
            f"decontaminate.against: expected pictures beside the released questions, found none that can be read for "
            f"{lost} questions; put them there, or name another release"
        )
    note = f"{lost:,} released questions have no picture that can be read: nothing was taken out for them"
    return kept, [note] if lost else []


def _without_near(
    rows: list[ForumImage], bits: int, folder: Path, kept_out: Sequence[tuple[bytes, Path]]
) -> tuple[list[ForumImage], list[Lost]]:
    """Drop rows with the picture of an earlier row, or with one to keep out; return the others, and rejects.

    A thread whose first score is dropped loses its later images, too: its question is about the first.
    """
    files = [path for _, path in kept_out] + [folder / f"{row['image_sha256']}.{row['extension']}" for row in rows]
    hashes = [known for known, _ in kept_out] + [bytes.fromhex(row["difference_hash"]) for row in rows]

    def same(one: int, other: int) -> bool:
        with Image.open(files[one]) as first, Image.open(files[other]) as second:
            return files[one] == files[other] or is_same_picture(first, second)

    first_score: dict[str, int] = {}
    needs: dict[int, int] = {}
    for at, row in enumerate(rows, len(kept_out)):
        if row["thread_key"] in first_score:
            needs[at] = first_score[row["thread_key"]]
        elif row["is_score"]:
            first_score[row["thread_key"]] = at
    found = near_duplicates(hashes, bits, same, needs)
    near = {at - len(kept_out): first - len(kept_out) for at, first in found.items()}
    refused = []
    for at, first in near.items():
        if at < 0:  # two of the kept out are alike
            continue
        if first in near:
            first = near[first]
            reason = "near_duplicate" if first >= 0 else "decontaminated"
            why = BadRow(reason, "expected the thread's first score, found that lost as a copy")
        elif first < 0:
            why = BadRow("decontaminated", "expected an image unlike those of decontaminate.against, found a copy")
        else:
            earlier = f"{rows[first]['thread_key']}/{rows[first]['place']}"
            why = BadRow("near_duplicate", f"expected an image unlike the others, found one near that of {earlier}")
        other = rows[first]["thread_key"] if first >= 0 else None
        refused.append(_reject(rows[at]["thread_key"], rows[at]["place"], why, other))
    return [row for at, row in enumerate(rows) if at not in near], refused


def _reject(thread_key: str, place: int, why: BadRow, near: str | None = None) -> Lost:
    things = tuple(("question", key) for key in (thread_key, near) if key)
    item = f"{thread_key}/{place}"
    return THREADS_ENTER, Reject(item, why.reason, why.detail, "", None, made_from=things)


def _account(threads: Sequence[PicturedThread], rows: Sequence[ForumImage], named: set[str]) -> Account:
    """Account for threads with a score; the others are rejects."""
    with_score = {row["thread_key"] for row in rows if row["is_score"]}
    with_image = {row["thread_key"] for row in rows}
    rejects = []
    for thread in threads:
        if (key := thread["thread_key"]) in with_score:
            continue
        if key in with_image:
            reason, why = "no_score", "found none among its images"
        elif key in named:
            reason, why = "no_image", "found no image that can be used"
        elif thread["image_from"] in ("page", "text"):
            reason, why = "no_image", "found a page or album whose files no rule tells; images takes them"
        else:
            reason, why = "no_image", "found no image"
        rejects.append((THREADS_ENTER, Reject(key, reason, f"expected a score, {why}", thread["file"], thread["line"])))
    return Account(
        name="scores",
        unit="submissions",
        follows="threads",
        entered=len(threads),
        kept=len(with_score),
        rejects=rejects,
    )
