"""`earmark audit`: people answer rows of a version without seeing the labels, and the labels are counted."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from earmark.flows.command.options import (
    AudioRootOption,
    JsonOption,
    OutOption,
    StoreOption,
    VersionArgument,
    open_store,
    print_json,
)
from earmark.flows.command.study_cli import FilesArgument, FolderArgument

app = typer.Typer(help="Let people check the labels of a version.", no_args_is_help=True, rich_markup_mode="markdown")


@app.command()
def sample(
    version: VersionArgument,
    out: OutOption,
    rows: Annotated[int, typer.Option(min=1, help="Rows: one of each label and stratum in turn.")] = 100,
    reviewers: Annotated[int, typer.Option(min=1, help="People who answer each row.")] = 2,
    people: Annotated[int, typer.Option(min=1, help="People in all; rows are shared among them.")] = 2,
    evaluation: Annotated[
        str | None, typer.Option(help="Whose samples and labels, where a corpus has several.")
    ] = None,
    stratify: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A group of the evaluation to draw by.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Only this split, or all; by default those held out, where there are any.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Only rows of this language.")] = None,
    beside: Annotated[bool, typer.Option("--beside", help="Clips beside the pages instead of inside.")] = False,
    audio_root: AudioRootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw rows and write a page for each reviewer, with sound and pictures and without the labels.

    **Example:** `earmark audit sample instruction-rubrics --rows 100 --stratify kind --out audit`
    """
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.people.auditing import AuditWish, start_audit

    place = open_store(store)
    chosen = place.find(version)
    wish = AuditWish(
        evaluation=evaluation,
        rows=rows,
        reviewers=reviewers,
        pages=people,
        stratify=stratify,
        split=split,
        language=language,
        inside=not beside,
        roots=tuple(audio_root or ()),
    )
    plan = start_audit(chosen, find_corpus(chosen.corpus), place, wish, out.absolute())
    assert plan.audited is not None
    drawn, total = len(plan.audited.strata), sum(plan.audited.totals.values())
    if as_json:
        facts = {"corpus": chosen.corpus, "version": chosen.name, "rows": drawn, "of": total, "pages": len(plan.pages)}
        print_json(facts | {"folder": str(out / "pages")})
        return
    print(f"{chosen.corpus} {chosen.name}: {drawn:,} of {total:,} rows on {len(plan.pages)} pages in {out / 'pages'}")
    print(f"send each reviewer one page, or run: earmark study serve {out}; then: earmark audit read {out} FILE…")


@app.command("read")
def read_(
    folder: FolderArgument, files: FilesArgument = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Count how often reviewers give a row's label, with 95 % intervals, and keep it beside the version.

    **Example:** `earmark audit read audit returned/*.json`
    """
    from earmark.schemas.errors import InputError
    from earmark.tasks.people.answers import read_answers, read_plan
    from earmark.tasks.people.audit_results import ROWS, summary, verdicts, write_record

    plan = read_plan(folder)
    returned, refused = read_answers(plan, folder, files or [])
    rows = verdicts(plan, returned)
    if not rows:
        more = f": {refused[0]}" if refused else "; name the files that reviewers sent back"
        raise InputError(f"no answers to read{more}")
    facts = {**summary(plan, rows), "refused": refused}
    place = open_store(store)
    name = f"{facts['evaluation']}-{plan.pages[0].key[:8]}"  # one record for each audit, however often it is read
    record = place.root / "audits" / facts["corpus"] / facts["version"] / name
    write_record(record, facts, rows)
    if as_json:
        print_json({**facts, "record": str(record)})
        return
    _show(facts)
    contested = [one for one in rows if one.verdict in ("refuted", "disputed")]
    print(f"{len(contested):,} rows are refuted or disputed: {record / ROWS}")


def _show(facts: dict[str, Any]) -> None:
    from earmark.flows.command.console import console, grid_of

    headings = ("label", facts["stratify"] or "rows", "in the version", "audited", "confirmed", "refuted", "disputed")
    cells = [
        (
            *(cell["label"], cell["stratum"], f"{cell['rows']:,}"),
            f"{sum(cell[name] for name in ('confirmed', 'refuted', 'disputed', 'unsure')):,}",
            *(f"{cell[name]:,}" for name in ("confirmed", "refuted", "disputed", "unsure")),
            _share(cell),
        )
        for cell in facts["cells"]
    ]
    console.print(grid_of(*headings, "unsure", "precision, 95 %", rows=cells, right=7))
    print(f"precision of {facts['evaluation']} in {facts['corpus']} {facts['version']}: {_share(facts['overall'])}")
    alone = [f"{one['stratum']} {_share(one)}" for one in facts["alone"]]
    print(f"one reviewer alone gives the label in: {', '.join(alone)}")
    if facts["covered"] < 1:
        print(f"audited kinds are {facts['covered']:.0%} of the rows: draw more rows, or leave --stratify out")
    alpha = facts["alpha"]
    print(f"Krippendorff's alpha of {facts['reviewers']} reviewers: " + ("–" if alpha is None else f"{alpha:.2f}"))
    for line in facts["refused"]:
        print(f"refused: {line}", file=sys.stderr)


def _share(values: dict[str, Any]) -> str:
    if values["precision"] is None:
        return "–"
    return f"{values['precision']:.3f} [{values['low']:.3f}, {values['high']:.3f}]"
