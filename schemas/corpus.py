"""What the command line and the card know of a corpus without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from earmark.schemas.config import BuildConfig
from earmark.schemas.evaluations import Evaluation, Generation
from earmark.schemas.tables import Table
from earmark.schemas.views import View


@dataclass(frozen=True)
class Story:
    """The corpus's own words on the dataset card.

    Attributes:
        title: the card's heading.
        summary: one paragraph: what it is and what it is for.
        method: how it is made, a sentence a step.
        main_table: the table that `load_dataset` gives when none is named.
        references: the papers whose method it follows, one a line.
        limits: what a user must not conclude.
        tags: words for the Hub.
        tasks: what it trains or measures, in the Hub's words (`schemas/hub_vocabulary.json`).
        languages: that its own prompts ask for, as ISO 639-1 codes; none where texts are as the inputs have them.
    """

    title: str
    summary: str
    method: tuple[str, ...]
    main_table: str
    references: tuple[str, ...]
    limits: tuple[str, ...]
    tags: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """One corpus.

    Attributes:
        name: as in `earmark build NAME`.
        source: what it is made from, in a few words.
        holds: what it holds, in a few words.
        paper: whose method it follows.
        config: the model of its build config.
        tables: every table of a version, in the order of the card.
        story: the card's words.
        plan: `module:function` that plans a build; imports no Prefect, so that "up to date" is said at once.
        peeks: `module:function` that says what of a config's inputs is looked at before a build starts;
            `tasks/build/preflight.py` tells how to write one.
        flow: `module:flow` that builds it.
        recount: `module:function` that writes the counted tables anew where rows were withdrawn;
            `recompute` in `tasks/store/commit.py` tells how to write one. None where no table is counted from others.
        card: `module:function` that gives the card's own sections from the tables alone, for a version of which rows
            were withdrawn; None where they speak of more than the tables.
        report: `module:function` that gives the report's own sections; `tasks/build/report.py` tells how to write one.
        views: what `earmark export` gives to trainers; `schemas/views.py` tells how to declare one.
        hides_places: whether the file and line of a reject lead to a person: versions then name its source alone, and
            the store keeps the rest for `earmark explain`.
        evaluations: what `earmark judge` measures models with; `schemas/evaluations.py` tells how to declare one.
        layouts: published benchmark files that the evaluations measure as they are, `earmark judge FILE --layout NAME`:
            `module:function(path, folder for embedded audio) -> rows by table`, where `file` in a row names a clip.
        ranked: the query `tasks/<ranked>.sql` of `earmark judge --rank`, a row a vote between two systems:
            `board` (what is ranked on its own), `modality`, `system_a`, `system_b`, `preference` (a, b or tie) and
            `cluster`, such as the prompt. None where the corpus compares no systems.
        generation: the prompts that `earmark score` measures submissions on; None where there are none.
    """

    name: str
    source: str
    holds: str
    paper: str
    config: type[BuildConfig]
    tables: tuple[Table, ...]
    story: Story
    plan: str
    flow: str
    peeks: str | None = None
    recount: str | None = None
    card: str | None = None
    report: str | None = None
    hides_places: bool = False
    views: tuple[View, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    ranked: str | None = None
    generation: Generation | None = None
