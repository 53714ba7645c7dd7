"""`earmark review`: questions go out to reviewers and come back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, print_json

app = typer.Typer(help="Let people review questions.", no_args_is_help=True, rich_markup_mode="markdown")

SpecArgument = Annotated[
    str, typer.Argument(metavar="score-questions[@vN]", help="The newest version, or version N with @vN.")
]


@app.command("export")
def export(
    version: SpecArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to write; it must be empty or not exist.")
    ],
    images_at: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address at which Label Studio finds images. Default: images are inside the tasks.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export in DIR.")] = False,
    store: StoreOption = None,
) -> None:
    """Write a version's questions as a table for spreadsheets and as a project of Label Studio.

    **Example:** `earmark review export score-questions --out review`
    """
    from earmark.tasks.score_questions.review_files import CONFIG, SHEET, TASKS, write_review

    chosen = _version(version, store)
    count = write_review(chosen, out, images_at=images_at, force=force)
    print(f"{chosen.corpus} {chosen.name}: {count:,} questions to review in {out}")
    print(f"in a spreadsheet: {SHEET}; in Label Studio: {CONFIG} and {TASKS}; README.md says how")


@app.command("import")
def import_(
    version: SpecArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Filled-in tables, or exports of Label Studio.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write all reviews to this CSV, for `[review] files` of a config."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read reviews: count them, list flagged questions, measure agreement, and write one table for a build.

    **Example:** `earmark review import score-questions alice.csv label-studio.json --out reviews.csv`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import StoreError
    from earmark.tasks.score_questions.review_agreement import summary_of
    from earmark.tasks.score_questions.review_files import contents_of, write_verdicts
    from earmark.tasks.score_questions.reviews import gather_reviews

    if out is not None and out.exists() and not force:
        raise StoreError(f"--out: {out} exists already; replace it with --force, or choose another file")
    chosen = _version(version, store)
    verdicts, refused = gather_reviews([(path, path.name) for path in files], contents_of(chosen))
    facts: dict[str, Any] = {
        "corpus": chosen.corpus,
        "version": chosen.name,
        **summary_of(verdicts, contents_of(chosen)),
        "refused": [reject._asdict() for reject in refused],
    }
    if out is not None:
        write_verdicts(out, verdicts)
    if as_json:
        agreement = {name: [asdict(one) for one in facts[name]] for name in ("agreement", "alpha")}
        print_json({**facts, **agreement})
    else:
        console.show_reviews(facts, out)


def _version(spec: str, store: str | None) -> Any:
    from earmark.schemas.errors import StoreError

    if spec.partition("@")[0] != "score-questions":
        raise StoreError(
            f"expected score-questions or score-questions@vN, found '{spec}': other corpora have no review"
        )
    return open_store(store).find(spec)
