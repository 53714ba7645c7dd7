"""Facts about real pictures, typed by people on a page, as questions of the perception probe (WildScore, section
4.4)."""

import hashlib
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.study import FACTS, PAGES, PLAN, AnnotatorPage, StudyPlan, Trial
from earmark.tasks.people.answers import Returned
from earmark.tasks.people.choosing import page_names
from earmark.tasks.people.page import picture_address, render, write_page, write_plan
from earmark.tasks.score_questions.made_music import Fact, facts_of
from earmark.tasks.score_questions.probe import rows_of_facts
from earmark.tasks.score_questions.released import IMAGES, TABLE, picture_columns, write
from earmark.tasks.store.folder import RECORD, building, write_facts

REVIEWERS = 2  # as in the paper; both type all pictures
SEED = 17  # of wrong options and letters
INTRO = (
    "Write down what stands in each picture, by yourself. Count all that is shown. Leave empty what the picture does "
    "not show, or what you cannot tell."
)


def write_pages(images: Iterable[tuple[str, bytes]], folder: Path) -> tuple[int, list[str]]:
    """Write a page for each reviewer that asks for the facts of pictures, which lie in `images/` as they are.

    Returns:
        The number of pictures, and a line for each unreadable one.

    Raises:
        StoreError: the folder is not free, or there is no picture.
    """
    refused, files = [], dict[str, bytes]()
    for name, content in images:
        if (image := picture_columns(content)["image"]) is None:
            refused.append(f"{name}: expected a picture (PNG, JPEG, GIF, WEBP), found none that can be decoded")
            continue
        files[f"{Path(name).stem}{Path(image['path']).suffix}"] = content
    if not files:
        raise StoreError("expected pictures to write facts of, found none that can be read")
    pages = []
    for name in page_names(REVIEWERS):
        key = secrets.token_hex(16)
        ids = {hashlib.sha256(f"{key} {file}".encode()).hexdigest()[:16]: file for file in files}
        trials = tuple(Trial(id=one, kind="facts", prompt_id=ids[one]) for one in sorted(ids))
        pages.append(AnnotatorPage(name=name, key=key, trials=trials))
    plan = StudyPlan(
        study=folder.name, kind="facts", questions=(), choices=(), most_failed=1.0, prompts={}, generations={},
        pages=tuple(pages),
    )  # fmt: skip
    intro = [render("screens/intro", kind="text", html=f"<h1>Facts about scores</h1><p>{INTRO}</p>")]
    with building(folder.absolute(), force=None, record=PLAN) as place:
        for part in (IMAGES, PAGES):
            (place / part).mkdir()
        for file, content in files.items():
            (place / IMAGES / file).write_bytes(content)
        for page in pages:
            screens = [
                (one.id, render("screens/facts", image=picture_address(files[one.prompt_id]), fields=FACTS))
                for one in page.trials
            ]
            write_page(place / PAGES, plan.study, page, 0.0, intro, screens, {})
        write_plan(plan, place)
    return len(files), refused


def write_typed_probe(
    plan: StudyPlan, returned: Sequence[Returned], exported: Path, folder: Path, *, force: bool
) -> dict[str, Any]:
    """Write the facts on which all reviewers of a picture agree as questions in WildScore's layout.

    Returns:
        The numbers of pictures and questions (`perception`), of facts that both reviewers typed (`both`) and of equal
        ones among them (`agree`), and a line for each disputed fact.

    Raises:
        InputError: the plan is another's, or nothing is agreed on.
        StoreError: the folder is taken.
    """
    if plan.kind != "facts":
        raise InputError(f"{exported}: expected pages of `earmark people review export --for facts`")
    typed: dict[str, dict[str, dict[str, str]]] = {}
    trials = {(page.name, one.id): one.prompt_id for page in plan.pages for one in page.trials}
    for one in returned:
        for trial, answer in one.answers.items():
            of_picture = typed.setdefault(trials[one.page, trial], {})
            for fact, value in answer.response.items():
                if value:
                    of_picture.setdefault(fact, {})[one.page] = value
    facts, disputed, several = list[tuple[str, Fact]](), list[str](), Counter[str]()
    for file, by_fact in sorted(typed.items()):
        agreed = {}
        for fact in FACTS:
            values = by_fact.get(fact, {})
            same = len({*values.values()}) == 1
            several.update(["both", *(["agree"] if same else [])] if len(values) > 1 else [])
            if same:
                agreed[fact] = next(iter(values.values()))
            elif values:
                said = ", ".join(f"{page} {value}" for page, value in sorted(values.items()))
                disputed.append(f"{file}: {fact}: {said}")
        facts += [(file, one) for one in facts_of(agreed, random.Random(f"{SEED} {file}"))]
    if not facts:
        raise InputError("no fact is typed, or reviewers agree on none: name the files that they sent back")
    counts = {
        "images": len({file for file, _ in facts}), "perception": len(facts), "both": several["both"],
        "agree": several["agree"], "disputed": disputed,
    }  # fmt: skip
    with building(folder.absolute(), force=force) as place:
        (place / IMAGES).mkdir()
        for file in {file for file, _ in facts}:
            (place / IMAGES / file).write_bytes((exported / IMAGES / file).read_bytes())
        rows = [*rows_of_facts(facts, "Perception", SEED)]
        write(iter([pa.RecordBatch.from_pylist(rows)]), place / TABLE)
        write_facts(place, RECORD, counts)
    return counts
