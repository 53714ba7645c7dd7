"""Facts about real pictures, typed by people, as questions of the perception probe (WildScore, section 4.4)."""

import hashlib
import random
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.study import FACTS
from earmark.tasks.score_questions.made_music import Fact, facts_of
from earmark.tasks.score_questions.probe import WRITTEN, rows_of_facts
from earmark.tasks.score_questions.released import IMAGES, TABLE, picture_columns, write
from earmark.tasks.score_questions.review_files import refuse_work, write_mark
from earmark.tasks.store.folder import PREPARED, building

SEED = 17  # of wrong options and letters


def readable(images: Iterable[tuple[str, bytes]]) -> tuple[dict[str, bytes], list[str]]:
    """Return pictures that models take by file name, unchanged, and a line for each other one.

    Raises:
        StoreError: there is no picture.
    """
    files, refused = dict[str, bytes](), []
    for name, content in images:
        if (image := picture_columns(content)["image"]) is None:
            refused.append(f"{name}: expected a picture (PNG, JPEG, GIF, WEBP), found none that can be decoded")
            continue
        suffix = Path(image["path"]).suffix
        file = f"{Path(name).stem}{suffix}"
        if files.get(file, content) != content:  # a.jpg and a.jpeg
            file = f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
        files[file] = content
    if not files:
        raise StoreError("expected pictures to write facts of, found none that can be read")
    return files, refused


def write_typed_probe(
    typed: Mapping[str, Mapping[str, Mapping[str, str]]], images: Path, folder: Path, *, force: bool
) -> dict[str, Any]:
    """Write typed facts as questions in WildScore's layout, except those on which people differ.

    A fact that one person alone typed is taken.

    Args:
        typed: values by picture, fact and person.
        images: the folder of the pictures.

    Returns:
        The numbers of pictures and questions (`perception`), of facts that several people typed (`both`) and of equal
        ones among them (`agree`), and a line for each disputed fact.

    Raises:
        InputError: nothing is typed, or agreed on.
        StoreError: the folder is taken, or holds files of others.
    """
    facts, disputed, agree, both = list[tuple[str, Fact]](), list[str](), 0, 0
    for file, by_fact in sorted(typed.items()):
        agreed = {}
        for fact in FACTS:
            values = by_fact.get(fact, {})
            same = len({*values.values()}) == 1
            both += len(values) > 1
            agree += len(values) > 1 and same
            if same:
                agreed[fact] = next(iter(values.values()))
            elif values:
                said = ", ".join(f"{person} {value}" for person, value in sorted(values.items()))
                disputed.append(f"{file}: {fact}: {said}")
        facts += [(file, one) for one in facts_of(agreed, random.Random(f"{SEED} {file}"))]
    if not facts:
        raise InputError("no fact is typed, or people agree on none: name the files that they sent back")
    files = {file for file, _ in facts}
    counts = {"images": len(files), "perception": len(facts), "both": both, "agree": agree, "disputed": disputed}
    check = partial(refuse_work, written=WRITTEN)
    with building(folder.absolute(), force=force, record=PREPARED, check=check) as place:
        (place / IMAGES).mkdir()
        for file in files:
            shutil.copyfile(images / file, place / IMAGES / file)
        rows = [*rows_of_facts(facts, "Perception", SEED)]
        write(iter([pa.RecordBatch.from_pylist(rows)]), place / TABLE)
        write_mark(place, counts)
    return counts
