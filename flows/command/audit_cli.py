"""Implement `earmark people audit`: count the labels that people confirm without seeing them."""

from typing import TYPE_CHECKING, Annotated

import typer

from earmark.flows.command.options import (
    AudioRootOption,
    JsonOption,
    OutOption,
    StoreOption,
    VersionArgument,
    open_store,
    option,
    print_json,
)
from earmark.flows.command.study_cli import FilesArgument, FolderArgument

if TYPE_CHECKING:
    from earmark.schemas.study import AuditFacts

app = typer.Typer(help="Let people check the labels of a version.", no_args_is_help=True, rich_markup_mode="markdown")


@app.command()
def sample(
    version: VersionArgument,
    out: OutOption,
    limit: Annotated[
        int, option("--limit -n N", "Draw N rows: labels and strata in turn, of an exam in proportion.", min=1)
    ] = 100,
    reviewers: Annotated[int, option("N", "The number of people who answer each row.", min=1)] = 2,
    people: Annotated[int, option("N", "The number of people; they share the rows.", min=1)] = 2,
    evaluation: Annotated[str | None, option("NAME", "The evaluation; needed if the corpus has several.")] = None,
    stratify: Annotated[str | None, option("COLUMN", "A group of the evaluation to draw by.")] = None,
    split: Annotated[str | None, option("NAME", "The split, or `all`. Default: the held-out ones.")] = None,
    language: Annotated[str | None, option("CODE", "Only rows of this language.")] = None,
    beside: Annotated[bool, option("--beside", "Put clips beside the pages, not inside.")] = False,
    audio_root: AudioRootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw rows and write a page for each reviewer, with sound and pictures and without the labels.

    **Example:** `earmark people audit sample instruction-rubrics --limit 100 --stratify kind --out audit`
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.people.auditing import AuditOptions, start_audit
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    chosen = place.find(version)
    wish = AuditOptions(
        evaluation=evaluation,
        rows=limit,
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
    tell(f"{chosen.corpus} {chosen.name}: {drawn:,} of {total:,} rows on {len(plan.pages)} pages in {out / 'pages'}")
    tell(f"send each reviewer one page, or run: earmark people study serve {out}")
    tell(f"then: earmark people audit read {out} FILE…")


@app.command("read")
def read_(
    folder: FolderArgument, files: FilesArgument = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Count how often reviewers give a row's label, with 95 % intervals, and keep it beside the version.

    **Example:** `earmark people audit read audit returned/*.json`
    """
    from earmark.flows.command.console import errors, tell
    from earmark.schemas.errors import InputError
    from earmark.tasks.people.answers import read_answers, read_plan, unplayed
    from earmark.tasks.people.audit_results import ROWS, summary, verdicts, write_record
    from earmark.tasks.people.auditing import ASKED

    plan = read_plan(folder)
    returned, refused = read_answers(plan, folder, files or [])
    rows = verdicts(plan, returned)
    if not rows:
        more = f": {refused[0]}" if refused else "; name the files that reviewers sent back"
        raise InputError(f"no answers to read{more}")
    tell(*unplayed(plan, returned), place=errors)
    facts: AuditFacts = {**summary(plan, rows), "refused": refused}
    place = open_store(store)
    name = f"{facts['evaluation']}-{plan.pages[0].key[:8]}"  # a record for each audit, however often it is read
    record = place.root / "audits" / facts["corpus"] / facts["version"] / name
    known = {version.manifest.digest() for version in place.versions(facts["corpus"])}
    if kept := facts["manifest_sha256"] in known:
        write_record(record, facts, rows, folder / ASKED)
    if as_json:
        print_json({**facts, "record": str(record) if kept else None})
    else:
        _show(facts)
    if not kept:
        spec = f"{facts['corpus']} {facts['version']}"
        raise InputError(f"not kept: {place.address} lacks the {spec} that the rows are from; name its store: --store")
    if not as_json:
        contested = [one for one in rows if one.verdict in ("refuted", "disputed")]
        tell(f"{len(contested):,} rows are refuted or disputed: {record / ROWS}")


def _show(facts: "AuditFacts") -> None:
    from earmark.flows.command.console import errors, print_result, tell
    from earmark.tasks.release.evaluated import alone_table, audit_table, covered_share

    tell("", head=f"labels of {facts['evaluation']} in {facts['corpus']} {facts['version']}")
    print_result(audit_table(facts))
    print_result(alone_table(facts, facts.get("alone", [])))
    if facts["covered"] < 1:
        advice = "draw more rows, of all splits (`--split all`) and languages, or leave --stratify out"
        tell(f"audited kinds are {covered_share(facts)} of the version's rows: {advice}")
    alpha = facts["alpha"]
    tell(f"Krippendorff's alpha of {facts['reviewers']} reviewers: " + ("–" if alpha is None else f"{alpha:.2f}"))
    for line in facts.get("refused", []):
        tell(f"refused: {line}", place=errors)
