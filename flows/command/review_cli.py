"""Implement `earmark people review`: send questions to reviewers and read their reviews."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from earmark.flows.command.options import (
    ForceOption,
    JsonOption,
    OutOption,
    StoreOption,
    open_store,
    option,
    print_json,
)
from earmark.flows.command.study_cli import FilesArgument

if TYPE_CHECKING:
    from earmark.schemas.reasons import Reject
    from earmark.tasks.score_questions.review_agreement import ReviewSummary

app = typer.Typer(help="Let people review questions.", no_args_is_help=True, rich_markup_mode="markdown")

MOST_FAULTS = 20  # number of faults of review files shown, each with its first row

SpecArgument = Annotated[str, typer.Argument(metavar="score-questions[@vN]", help="Default: the newest version.")]


@app.command("export")
def export(
    version: SpecArgument,
    out: OutOption,
    images_at: Annotated[str | None, option("URL", "Label Studio's address of images. Default: inside tasks.")] = None,
    purpose: Annotated[
        Literal["questions", "detection", "facts"],
        option("--for questions|detection|facts", "Review questions, draw boxes for a detector, or write down facts."),
    ] = "questions",
    images: Annotated[Path | None, option("DIR", "For detection and facts: this folder's images.")] = None,
    detector: Annotated[str, option("MODEL", "For detection: the model of first boxes.")] = "staff-lines",
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version's questions as a table for spreadsheets and as a project of Label Studio; or boxes to draw; or
    pages that ask two people what stands in each picture.

    **Examples:**

    `earmark people review export score-questions --out review`

    `earmark people review export score-questions --for detection --images scans --out boxes`

    `earmark people review export score-questions --for facts --images WildScore/images --out facts`
    """
    from earmark.flows.command import console
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.score_questions.review_files import CONFIG, SHEET, TASKS, write_review

    if purpose == "questions" and images is not None:
        raise ConfigError("--images: goes with --for detection or --for facts")
    if purpose == "facts" and (force or images_at is not None):
        raise ConfigError(
            "--for facts: its pages hold their pictures and replace none; leave out --force and --images-at"
        )
    if purpose == "questions":
        chosen = _version(version, store)
        count = write_review(chosen, out, images_at=images_at, force=force)
        facts: dict[str, Any] = {"corpus": chosen.corpus, "version": chosen.name, "questions": count}
        lines = [
            f"{chosen.corpus} {chosen.name}: {count:,} questions to review in {out}",
            f"in a spreadsheet: {SHEET}; in Label Studio: {CONFIG} and {TASKS}; README.md says how",
        ]
    else:
        from earmark.schemas.score_questions import Detector
        from earmark.tasks.people.typing import write_fact_pages
        from earmark.tasks.score_questions.boxes import folder_images, version_images, write_boxes
        from earmark.tasks.score_questions.facts import readable

        found = folder_images(images) if images is not None else version_images(_version(version, store))
        if purpose == "facts":
            files, refused = readable(found)
            write_fact_pages(files, out)
            number = len(files)
            lines = [
                f"{number:,} pictures on each of two pages in {out / 'pages'}",
                f"send each person one page, or run: earmark people study serve {out}",
                f"then: earmark people review facts {out} FILE… --out DIR",
            ]
        else:
            first = Detector(model=detector)
            number, refused = write_boxes(found, first, Path.cwd(), out, images_at=images_at, force=force)
            lines = [
                f"{number:,} images to draw boxes in, in {out}",
                f"in Label Studio: {CONFIG} and {TASKS}",
                f"then: earmark people review boxes {out} EXPORT.json --out DIR",
            ]
        console.tell(*(f"left out: {line}" for line in refused), place=console.errors)
        facts = {"images": number, "refused": refused}
    print_json({**facts, "folder": str(out)}) if as_json else console.tell(*lines)


@app.command("import")
def import_(
    version: SpecArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Filled-in tables, or exports of Label Studio.")],
    out: Annotated[Path | None, option("--out -o FILE", "Write all reviews to a CSV for a config's `review`.")] = None,
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read reviews: count them, list flagged questions, measure agreement, and write one table for a build.

    **Example:** `earmark people review import score-questions alice.csv label-studio.json --out reviews.csv`
    """
    from earmark.schemas.errors import InputError, StoreError
    from earmark.tasks.score_questions.review_agreement import summary_of
    from earmark.tasks.score_questions.review_files import contents_of, write_verdicts
    from earmark.tasks.score_questions.reviews import gather_reviews

    if out is not None and out.exists() and not force:
        raise StoreError(f"--out: {out} exists already; replace it with --force, or choose another file")
    chosen = _version(version, store)
    verdicts, refused = gather_reviews([(path, path.name) for path in files])
    if out is not None and not verdicts:
        first = f": {refused[0].source_file}, {refused[0].line}: {refused[0].detail}" if refused else ""
        raise InputError(f"expected reviews, found none in {len(files)} files; {out} is not written{first}")
    summary = summary_of(verdicts, contents_of(chosen))
    if out is not None:
        write_verdicts(out, verdicts)
    if as_json:
        rejects = [reject._asdict() for reject in refused]
        print_json({"corpus": chosen.corpus, "version": chosen.name, **asdict(summary), "refused": rejects})
    else:
        _show_reviews(f"{chosen.corpus} {chosen.name}", summary, refused, out)


@app.command("boxes")
def boxes(
    exported: Annotated[Path, typer.Argument(metavar="DIR", help="What `review export --for detection` wrote.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Label Studio's export, JSON or JSON-MIN.")],
    out: OutOption,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make training data of boxes that people drew: COCO's JSON, and YOLO's text with `data.yaml`.

    **Example:** `earmark people review boxes boxes label-studio.json --out training`
    """
    from earmark.flows.command import console
    from earmark.tasks.score_questions.boxes import write_training_data

    counts = write_training_data(exported, file, out, force=force)
    if as_json:
        print_json(counts)
        return
    number = counts.pop("images")
    console.tell(f"{number:,} images in {out}: {', '.join(f'{many:,} {kind}' for kind, many in counts.items())}")
    console.tell("coco.json for COCO's readers, data.yaml for YOLO's; bring the model as detector.model")


@app.command("facts")
def facts_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `review export --for facts` wrote.")],
    out: OutOption,
    files: FilesArgument = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make questions of facts that one person, or both alike, wrote down, in WildScore's layout.

    **Example:** `earmark people review facts facts returned/*.json --out probe`
    """
    from earmark.flows.command import console
    from earmark.schemas.study import PICTURES
    from earmark.tasks.people.answers import read_answers, read_plan
    from earmark.tasks.people.typing import typed_facts
    from earmark.tasks.score_questions.facts import write_typed_probe

    plan = read_plan(folder)
    returned, refused = read_answers(plan, folder, files or [])
    counts = write_typed_probe(typed_facts(plan, returned), folder / PICTURES, out, force=force)
    if as_json:
        print_json({**counts, "refused": refused})
        return
    console.tell(*(f"refused: {line}" for line in refused), place=console.errors)
    console.tell(*(f"disputed, and left out: {line}" for line in counts["disputed"]))
    console.tell(
        f"{counts['perception']:,} questions about {counts['images']:,} pictures in {out}; both people wrote down "
        f"{counts['both']:,} facts, {counts['agree']:,} of them alike",
        f"next: earmark eval run {out} --layout wildscore -a MODEL",
    )


def _version(spec: str, store: str | None) -> Any:
    from earmark.schemas.errors import StoreError

    if spec.partition("@")[0] != "score-questions":
        raise StoreError(
            f"expected score-questions or score-questions@vN, found '{spec}': other corpora have no review"
        )
    return open_store(store).find(spec)


def _show_reviews(version: str, summary: "ReviewSummary", refused: Sequence["Reject"], out: Path | None) -> None:
    from earmark.flows.command.console import print_result, tell
    from earmark.tasks.score_questions.review_agreement import agreement_tables

    tell(
        f"{summary.reviews:,} reviews by {len(summary.reviewers)} reviewers; {summary.counted:,} of them match "
        f"{version}; {summary.reviewed_questions:,} of its {summary.questions:,} questions are reviewed"
    )
    alike = [who for who in summary.reviewers if sum(who.casefold() == one.casefold() for one in summary.reviewers) > 1]
    if alike:
        tell(f"note: {', '.join(alike)} count as {len(alike)} reviewers: write one name alike in all files")
    rows: dict[tuple[str, str], list[int | None]] = {}
    for one in refused:
        rows.setdefault((one.source_file, one.detail), []).append(one.line)
    for (file, detail), lines in list(rows.items())[:MOST_FAULTS]:
        more = f" and {len(lines) - 1:,} more rows" if lines[1:] else ""
        tell(f"not read: {file}, {lines[0]}{more}: {detail}")
    if unsaid := sum(map(len, list(rows.values())[MOST_FAULTS:])):
        tell(f"not read: {unsaid:,} more rows; --json lists them")
    flagged = summary.flagged
    tell(
        f"flagged: {len(flagged['any']):,} by any reviewer, {len(flagged['majority']):,} by a majority, "
        f"{len(flagged['all']):,} by all"
    )
    for table in agreement_tables(summary.agreement, summary.alpha):
        if table.rows:
            print_result(table)
    if out is not None:
        tell(f"written to {out}; add it to the config as review = [...], above its tables, and build again")
