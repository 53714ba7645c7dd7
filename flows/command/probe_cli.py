"""Implement `earmark eval probe`, `abc` and `causes`: what a model reads in scores (WildScore, section 4.4)."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import (
    AnnotatorOption,
    BaseUrlOption,
    ForceOption,
    JsonOption,
    OutOption,
    RecordOption,
    SettingsOption,
    StoreOption,
    open_store,
    option,
    print_json,
    print_record,
)

ProbeArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `earmark eval probe` wrote.")]


def probe(
    out: OutOption,
    images: Annotated[int, option("N", "Pictures to make.", min=1, max=10_000)] = 50,
    seed: Annotated[int, option("N", "Another seed makes other music.")] = 17,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make music with known facts: pictures, questions about what is written and what follows from it, and ABC.

    Needs `pip install 'earmark[scores]'`. Measure a model on it by `earmark eval run`, `abc` and `causes`.

    **Examples:**

    `earmark eval probe --out probe`

    `earmark eval run probe --layout wildscore -a openai:gpt-4.1-mini`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.score_questions.probe import write_probe

    counts = write_probe(out, images, seed, force=force)
    if as_json:
        print_json({"folder": str(out), **counts})
        return
    tell(
        f"{counts['images']:,} pictures in {out}: {counts['perception']:,} questions about what is written (data.csv), "
        f"{counts['reasoning']:,} about what follows (reasoning.csv); the music is in abc/",
        f"next: earmark eval run {out} --layout wildscore -a MODEL",
    )


def abc(
    folder: ProbeArgument,
    annotator: AnnotatorOption = None,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    out: RecordOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a model for the ABC notation of pictures with known music, and compare it bar by bar.

    A folder of yours works too: `images/NAME.png` beside `abc/NAME.abc`.

    **Example:** `earmark eval abc probe -a openai:gpt-4.1-mini`
    """
    from earmark.flows.command.ending import stoppable
    from earmark.tasks.evaluation.judging import examinee
    from earmark.tasks.pipeline.progress import shown
    from earmark.tasks.score_questions.probe import reconstruct, reconstruction_page

    model = examinee(annotator, base_url, settings)
    with stoppable("answers are kept; run the same command again to continue"), shown():
        record = reconstruct(folder, open_store(store), model, out)
    print_record(record, reconstruction_page, as_json, "ABC and tables")


def causes(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]RUN,FACTS", help="Folders of two runs of a model: questions, and facts."),
    ],
    out: OutOption,
    as_json: JsonOption = False,
) -> None:
    """Split wrong answers into errors of perception and of reasoning, by factual questions about the same pictures.

    **Example:** `earmark eval causes GPT=runs/gpt-questions,runs/gpt-facts --out causes`
    """
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.score_questions.probe import causes_page, split_errors

    given = []
    for run in runs:
        name, _, folders = run.rpartition("=")
        asked, comma, facts = folders.partition(",")
        if not comma:
            raise ConfigError(f"expected [NAME=]RUN,FACTS, found '{run}'")
        given.append((name or Path(asked).name, Path(asked), Path(facts)))
    print_record(split_errors(given, out), causes_page, as_json)
