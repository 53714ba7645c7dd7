"""Implement `earmark people study`: people compare or rate clips on their own pages, and their answers become votes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from earmark.schemas.results import SystemOpinion
    from earmark.schemas.study import StudyPlan
    from earmark.tasks.people.answers import AnnotatorProgress, Returned

app = typer.Typer(help="Let people compare or rate clips.", no_args_is_help=True, rich_markup_mode="markdown")

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The study's folder, as `start` wrote it.")]
FilesArgument = Annotated[list[Path] | None, typer.Argument(metavar="FILE…", help="Answers of annotators.")]


@app.command()
def start(
    out: OutOption,
    config: Annotated[Path | None, option("--config -c FILE", "The study's config, a TOML file.")] = None,
    from_scores: Annotated[str | None, option("CORPUS[@vN]", "Rate a version's scored systems, as ATTM does.")] = None,
    finalists: Annotated[int | None, option("N", "Of scored systems, the finalists.", min=1)] = None,
    system: Annotated[list[str] | None, option("NAME", "Of scored systems, this one, such as a topline.")] = None,
    annotators: Annotated[int | None, option("N", "The number of pages; 25 with --from-scores.", min=1)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose who hears what, and write one page for each annotator.

    **Examples:** `earmark people study start --config study.toml --out study`

    `earmark people study start --from-scores music-prompts@v1 --finalists 6 --system musicgen-small --out study`
    """
    from earmark.flows.command.console import errors, tell
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.study import PAGES, Study
    from earmark.schemas.toml import parse_config, read_toml
    from earmark.tasks.people.starting import start_study

    if config is None and from_scores is None:
        raise ConfigError("a study has a --config, or rates clips --from-scores of a version")
    scored = {"name": "listening-test", "annotators": 25, "scored_in": from_scores} if from_scores else {}
    given = {"finalists": finalists, "systems": system, "annotators": annotators}
    values = {**scored, **(read_toml(config) if config else {}), **{k: v for k, v in given.items() if v}}
    study = parse_config(Study, values, config or Path("--from-scores"))
    plan, rejects = start_study(study, out.absolute(), open_store(store))
    counts = [len(page.items) for page in plan.pages]
    facts = {
        "study": plan.study,
        "pages": len(counts),
        "trials": sum(counts),
        "rejects": [r._asdict() for r in rejects],
    }
    if as_json:
        print_json(facts)
        return
    for reject in rejects[:5]:
        tell(f"left out: {reject.source_file}, line {reject.line}: {reject.detail}", place=errors)
    if len(rejects) > 5:
        tell(f"left out: {len(rejects) - 5:,} more rows", place=errors)
    each = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    tell(f"{plan.study}: {len(counts)} pages in {out / PAGES}, {each} trials each")
    tell(f"send each annotator one page, or run: earmark people study serve {out}")
    tell(f"{out / 'plan.json'} says which model made what: keep it")


@app.command()
def serve(
    folder: FolderArgument,
    host: Annotated[str, option("HOST", "The address to listen on; use a proxy for other machines.")] = ("127.0.0.1"),
    port: Annotated[int, option("N", "The port; 0 takes a free one.", min=0, max=65535)] = 8765,
    name: Annotated[list[str] | None, option("--name HOST", "A proxy's host; the first is in the links.")] = None,
) -> None:
    """Serve the pages and keep what annotators answer, trial by trial.

    The links are in `links.txt`; each holds the key of one page. Answers lie in `answers/`.

    **Example:** `earmark people study serve study --port 8765`
    """
    from earmark.flows.command.console import tell
    from earmark.flows.command.metrics import for_hosts
    from earmark.schemas.errors import InputError
    from earmark.tasks.people.answers import read_plan
    from earmark.tasks.people.served import StudyApp
    from earmark.tasks.people.server import make_bounded_server

    plan = read_plan(folder)
    names = {one.lower() for one in (host, *(name or ()))}
    try:
        server = make_bounded_server(for_hosts(StudyApp(plan, folder), names, "--name"), host, port)
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: {error.strerror}; choose another") from None
    links = folder / "links.txt"
    links.touch(mode=0o600)
    where = f"http://{host}:{server.server_port}"
    sent = f"https://{name[0]}" if name else where  # people reach the proxy, which has TLS
    links.write_text("".join(f"{page.name} {sent}/{page.key}/\n" for page in plan.pages), "utf-8")
    tell(f"{plan.study}: serving {len(plan.pages)} pages at {where}; links in {links}; Ctrl-C ends")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            tell("stopped; answers are kept, and a page goes on when it is served again")


@app.command()
def status(
    folder: FolderArgument,
    files: FilesArgument = None,
    record: Annotated[str | None, option("--record CORPUS[@vN]", "Keep the MOS for `eval rank`.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far annotators are, who fails the checks, and how far they agree.

    **Example:** `earmark people study status study returned/*.json`; `--record music-prompts@v1` of a listening test
    """
    from earmark.flows.command.console import tell
    from earmark.tasks.people.answers import agreement_of, mean_opinions, progress_of, unplayed, usable

    plan, returned, refused = _read(folder, files)
    kept = usable(plan, returned)
    pages = progress_of(plan, returned)
    agreement = agreement_of(plan, kept) if plan.kind == "pairs" else {}
    opinions = mean_opinions(plan, kept) if plan.kind == "ratings" else []
    kept_in = None
    if record is not None:
        from earmark.tasks.people.answers import record_opinions
        from earmark.tasks.pipeline.registry import find_corpus

        place = open_store(store)
        version = place.find(record)
        kept_in = str(record_opinions(place, version, find_corpus(version.corpus), plan, returned))
    if as_json:
        facts = {"study": plan.study, "pages": [one._asdict() for one in pages], "agreement": agreement}
        facts |= {"mos": opinions, "refused": refused, "unplayed": unplayed(plan, returned)}
        print_json(facts | ({"record": kept_in} if kept_in else {}))
        return
    _show(pages, agreement, opinions, refused)
    tell(*unplayed(plan, returned))
    if kept_in is not None:
        tell(f"kept beside {record}: {kept_in}")


@app.command()
def fetch(
    folder: FolderArgument,
    out: Annotated[Path, option("--out -o FILE", "The JSON lines to write.")],
    files: FilesArgument = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the answers as votes that `human-preferences` reads, or as ratings.

    Answers of annotators who fail the checks are left out; changed, doubled or foreign files are refused.

    **Example:** `earmark people study fetch study returned/*.json --out votes.jsonl`
    """
    from earmark.flows.command.console import errors, tell
    from earmark.schemas.errors import InputError, StoreError
    from earmark.tasks.people.answers import lines_of, unplayed, usable, votes_of
    from earmark.tasks.store.files import write_text

    if out.exists() and not force:
        raise StoreError(f"--out: {out} exists already; replace it with --force, or choose another file")
    plan, returned, refused = _read(folder, files)
    kept = usable(plan, returned)
    rows = votes_of(plan, kept)
    tell(*(f"refused: {line}" for line in refused), *unplayed(plan, returned), place=errors)
    if not returned:
        found = f"found none in {len(refused)} files" if refused else "found none; name the files that they sent back"
        raise InputError(f"expected annotators' answers to {plan.study}, {found}: {out} is not written")
    failed = sorted({one.page for one in returned} - {one.page for one in kept})
    if failed:
        tell(f"left out, since they fail the checks: {', '.join(failed)}", place=errors)
    if not rows:
        raise InputError(
            f"expected annotators' answers to {plan.study} that count, found none in those of "
            f"{', '.join(one.page for one in returned)}: {out} is not written"
        )
    write_text(out, lines_of(rows))
    what = "votes" if plan.kind == "pairs" else "ratings"
    if as_json:
        print_json({"study": plan.study, what: len(rows), "annotators": len(kept), "file": str(out)})
        return
    tell(f"{plan.study}: {len(rows):,} {what} of {len(kept)} annotators in {out}")
    if plan.kind == "pairs":
        tell(f'in a config of human-preferences: format = "votes", files = ["{out.name}"]')
        if plan.generations_in or plan.prompts_in:
            tell("clips are named from the folder that holds those of prompts and generations: put the file there")
        if other := sorted({*plan.questions} - {"alignment", "musicality", "overall"}):
            columns = f'columns = {{ overall = "{other[0]}", confidence_overall = "confidence_{other[0]}" }}'
            tell(f"it reads alignment, musicality and overall; another question is named as one of these: {columns}")


def _show(
    pages: list[AnnotatorProgress],
    agreement: dict[str, float | None],
    opinions: list[SystemOpinion],
    refused: list[str],
) -> None:
    from earmark.flows.command.console import print_result, print_table, tell
    from earmark.tasks.evaluation.leaderboard import opinion_tables

    rows = [
        (
            *(one.page, f"{one.done:,} of {one.trials:,}", _of(one.known_right, one.known)),
            *(_of(one.repeats_same, one.repeats), "–" if one.median_s is None else f"{one.median_s:.0f} s"),
            {True: "expert", False: "no expert", None: ""}[one.expert],
            "fails" if one.fails else "",
        )
        for one in pages
    ]
    headings = ("page", "answered", "known answers right", "repeats the same", "median a trial", "listener", "checks")
    print_table(*headings, rows=rows)
    undefined = "not defined: it needs pairs that two annotators answered, not all alike"
    for question, alpha in agreement.items():
        tell(f"Krippendorff's alpha of {question}: {undefined if alpha is None else f'{alpha:.2f}'}")
    for table in opinion_tables(opinions):
        print_result(table)
    for line in refused:
        tell(f"refused: {line}")


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" if whole else "–"


def _read(folder: Path, files: list[Path] | None) -> tuple[StudyPlan, list[Returned], list[str]]:
    from earmark.tasks.people.answers import read_answers, read_plan

    plan = read_plan(folder)
    return plan, *read_answers(plan, folder, files or [])
