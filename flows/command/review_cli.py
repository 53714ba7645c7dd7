"""`earmark review`: questions go out to reviewers and come back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Have people review questions.", no_args_is_help=True, rich_markup_mode="markdown")

SpecArgument = Annotated[
    str, typer.Argument(metavar="score-questions[@vN]", help="The newest version, or the one named.")
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="DIR", help="Where versions lie. Default: EARMARK_STORE, else data/store."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command("export")
def export(
    version: SpecArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A folder that is not there or is empty.")],
    images_at: Annotated[
        str | None,
        typer.Option(
            "--images-at",
            metavar="URL",
            help="Where Label Studio finds the images, such as /data/local-files/?d=images. Default: within the tasks.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export in DIR.")] = False,
    store: StoreOption = None,
) -> None:
    """Write a version's questions as a table for spreadsheets and as a project of Label Studio.

    **Example:** `earmark review export score-questions --out review`
    """
    from earmark.tasks.score_questions.review_files import CONFIG, SHEET, TASKS, write_review

    found = _version(version, store)
    count = write_review(found, out, images_at=images_at, force=force)
    print(f"{found.corpus} {found.name}: {count:,} questions to review in {out}")
    print(f"in a spreadsheet: {SHEET}; in Label Studio: {CONFIG} and {TASKS}; README.md says how")


@app.command("import")
def import_(
    version: SpecArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Filled-in tables, or Label Studio's exports.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write all of it as one CSV for `[review] files`."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read what reviewers said: how much, what is flagged, how far they agree; and make one table of it for a build.

    **Example:** `earmark review import score-questions alice.csv label-studio.json --out reviews.csv`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import StoreError
    from earmark.tasks.score_questions.review_agreement import summary_of
    from earmark.tasks.score_questions.review_files import contents_of, write_verdicts
    from earmark.tasks.score_questions.reviews import gather_reviews

    if out is not None and out.exists() and not force:
        raise StoreError(f"--out: {out} is there already; replace it with --force, or name another file")
    found = _version(version, store)
    verdicts, refused = gather_reviews([(path, path.name) for path in files], contents_of(found))
    facts: dict[str, Any] = {
        "corpus": found.corpus,
        "version": found.name,
        **summary_of(verdicts, contents_of(found)),
        "refused": [reject._asdict() for reject in refused],
    }
    if out is not None:
        write_verdicts(out, verdicts)
    if as_json:
        told = {name: [asdict(one) for one in facts[name]] for name in ("agreement", "alpha")}
        print(json.dumps({**facts, **told}, indent=1, ensure_ascii=False))
    else:
        console.show_reviews(facts, out)


def _version(spec: str, store: str | None) -> Any:
    from earmark.schemas.errors import StoreError
    from earmark.tasks.store.versions import open_store

    if spec.partition("@")[0] != "score-questions":
        raise StoreError(f"expected score-questions or score-questions@vN, found '{spec}': no other corpus is reviewed")
    return open_store(store).find(spec)
