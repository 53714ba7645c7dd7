"""`earmark review`: questions go out to reviewers and come back."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from earmark.flows.command.options import ForceOption, JsonOption, OutOption, StoreOption, open_store, print_json

app = typer.Typer(help="Let people review questions.", no_args_is_help=True, rich_markup_mode="markdown")

SpecArgument = Annotated[
    str, typer.Argument(metavar="score-questions[@vN]", help="The newest version, or version N with @vN.")
]


@app.command("export")
def export(
    version: SpecArgument,
    out: OutOption,
    images_at: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address at which Label Studio finds images. Default: images are inside the tasks.",
        ),
    ] = None,
    purpose: Annotated[
        Literal["questions", "detection"],
        typer.Option("--for", help="Review questions, or draw the boxes that a detector learns from."),
    ] = "questions",
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --for detection: images of a folder instead of the version's."),
    ] = None,
    detector: Annotated[
        str, typer.Option(metavar="MODEL", help="With --for detection: who draws the first boxes; as `detector.model`.")
    ] = "staff-lines",
    force: ForceOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a version's questions as a table for spreadsheets and as a project of Label Studio; or boxes to draw.

    **Examples:** `earmark review export score-questions --out review` · `earmark review export score-questions
    --for detection --images scans --out boxes`
    """
    from earmark.tasks.score_questions.review_files import CONFIG, SHEET, TASKS, write_review

    if purpose == "detection":
        from earmark.schemas.score_questions import Detector
        from earmark.tasks.score_questions.boxes import folder_images, version_images, write_boxes

        found = folder_images(images) if images is not None else version_images(_version(version, store))
        first = Detector(model=detector)
        number, refused = write_boxes(found, first, Path.cwd(), out, images_at=images_at, force=force)
        for line in refused:
            print(f"left out: {line}", file=sys.stderr)
        if as_json:
            print_json({"images": number, "refused": refused, "folder": str(out)})
            return
        print(f"{number:,} images to draw boxes in, in {out}")
        print(f"in Label Studio: {CONFIG} and {TASKS}; then: earmark review boxes {out} EXPORT.json --out DIR")
        return
    chosen = _version(version, store)
    count = write_review(chosen, out, images_at=images_at, force=force)
    if as_json:
        print_json({"corpus": chosen.corpus, "version": chosen.name, "questions": count, "folder": str(out)})
        return
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
    force: ForceOption = False,
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


@app.command("boxes")
def boxes(
    exported: Annotated[Path, typer.Argument(metavar="DIR", help="What `review export --for detection` wrote.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Label Studio's export, JSON or JSON-MIN.")],
    out: OutOption,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make training data of boxes that people drew: COCO's JSON, and YOLO's text with `data.yaml`.

    **Example:** `earmark review boxes boxes label-studio.json --out training`
    """
    from earmark.tasks.score_questions.boxes import write_training_data

    counts = write_training_data(exported, file, out, force=force)
    if as_json:
        print_json(counts)
        return
    number = counts.pop("images")
    print(f"{number:,} images in {out}: {', '.join(f'{many:,} {kind}' for kind, many in counts.items())}")
    print("coco.json for COCO's readers, data.yaml for YOLO's; bring the model as detector.model")


def _version(spec: str, store: str | None) -> Any:
    from earmark.schemas.errors import StoreError

    if spec.partition("@")[0] != "score-questions":
        raise StoreError(
            f"expected score-questions or score-questions@vN, found '{spec}': other corpora have no review"
        )
    return open_store(store).find(spec)
