"""Ask people to type the facts of pictures on a page each, and collect what they typed."""

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from earmark.schemas.errors import InputError
from earmark.schemas.study import FACTS, PAGES, PICTURES, PLAN, AnnotatorPage, StudyPlan, Trial
from earmark.tasks.people.answers import Returned
from earmark.tasks.people.choosing import page_names
from earmark.tasks.people.page import picture_address, render, write_page, write_plan
from earmark.tasks.store.folder import building

REVIEWERS = 2  # as in WildScore; both type all pictures
INTRO = (
    "Write down what stands in each picture, by yourself. Count all that is shown. Leave empty what the picture does "
    "not show, or what you cannot tell."
)
Typed = dict[str, dict[str, dict[str, str]]]
"""Values by picture, fact and page."""


def write_fact_pages(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a page for each reviewer that asks for the facts of pictures, and the pictures as they are beside.

    Raises:
        StoreError: the folder is not free.
    """
    pages = []
    for name in page_names(REVIEWERS):
        key = secrets.token_hex(16)
        ids = {hashlib.sha256(f"{key} {file}".encode()).hexdigest()[:16]: file for file in files}
        trials = tuple(Trial(id=one, kind="facts", prompt_id=ids[one]) for one in sorted(ids))
        pages.append(AnnotatorPage(name=name, key=key, trials=trials))
    plan = StudyPlan(
        study=folder.absolute().name, kind="facts", questions=(), choices=(), most_failed=1.0, prompts={},
        generations={}, pages=tuple(pages),
    )  # fmt: skip
    intro = [render("screens/intro", kind="text", html=f"<h1>Facts about scores</h1><p>{INTRO}</p>")]
    with building(folder.absolute(), force=None, record=PLAN) as place:
        for part in (PICTURES, PAGES):
            (place / part).mkdir()
        for file, content in files.items():
            (place / PICTURES / file).write_bytes(content)
        for page in pages:
            addresses = [(one.id, picture_address(files[one.prompt_id])) for one in page.trials]
            screens = [(name, render("screens/facts", image=image, fields=FACTS)) for name, image in addresses]
            write_page(place / PAGES, plan.study, page, 0.0, intro, screens, {})
        write_plan(plan, place)


def typed_facts(plan: StudyPlan, returned: Iterable[Returned]) -> Typed:
    """Return what reviewers typed; nothing for an empty field.

    Raises:
        InputError: the plan is another's.
    """
    if plan.kind != "facts":
        raise InputError(f"{plan.study}: expected pages of `earmark people review export --for facts`")
    pictures = {(page.name, one.id): one.prompt_id for page in plan.pages for one in page.trials}
    typed: Typed = defaultdict(lambda: defaultdict(dict))
    for one in returned:
        for trial, answer in one.answers.items():
            for fact, value in answer.response.items():
                if value:
                    typed[pictures[one.page, trial]][fact][one.page] = value
    return typed
