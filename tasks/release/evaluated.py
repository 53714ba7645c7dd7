"""Collect a version's evaluations and audits, records beside it keyed by its digest, for its published card."""

import math
from collections.abc import Sequence
from typing import Any

from earmark.schemas.results import EvaluationFacts
from earmark.schemas.study import AuditFacts, PrecisionFacts, StratumFacts
from earmark.tasks.release.known_faults import facts_of, wrong_evaluations
from earmark.tasks.store.card import markdown_cell
from earmark.tasks.store.result_table import Interval, ResultColumn, ResultTable, interval
from earmark.tasks.store.versions import Store, Version

HEADLINES = {"accuracy": "accuracy", "srcc": "SRCC"}
MOST = 30


def evaluations_of(store: Store, version: Version) -> list[EvaluationFacts]:
    """Return the newest complete records, at most `MOST`, of this very content from the store's `evaluations/`.

    A repeated measurement of a model replaces its earlier record. Records of a part (`--limit`) or with a possible
    known fault are left out.
    """
    digest, wrong = version.manifest.digest(), set(wrong_evaluations(store, version.corpus))
    found: list[tuple[int, str, EvaluationFacts]] = []
    for path in sorted((store.root / "evaluations" / version.corpus).rglob("evaluation.json")):
        facts: Any = facts_of(path)
        if facts.get("manifest_sha256") == digest and facts.get("limit") is None and path.parent not in wrong:
            found.append((path.stat().st_mtime_ns, str(path), facts))
    newest = [facts for *_, facts in sorted(found, key=lambda one: one[:2], reverse=True)[:MOST]]
    return sorted(newest, key=lambda facts: (facts["evaluation"], _who(facts), facts["splits"]))


def newest_audits(store: Store, version: Version) -> list[AuditFacts]:
    """Return the newest `earmark people audit read` record of this very content, for each audited evaluation."""
    digest = version.manifest.digest()
    found = (store.root / "audits" / version.corpus).rglob("audit.json")
    newest = sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    audits: dict[str, AuditFacts] = {}
    for path in newest:
        facts: Any = facts_of(path)
        if facts.get("manifest_sha256") == digest:
            audits.setdefault(facts["evaluation"], facts)
    return [audits[name] for name in sorted(audits)]


def covered_share(facts: AuditFacts) -> str:
    """Return the covered share of a version's rows in per cent, rounded down: 100 % are all."""
    return f"{math.floor(1000 * facts['covered']) / 10:g} %"


def audit_section(facts: AuditFacts) -> str:
    """Render an audit as a section of a card."""
    covered = "" if facts["covered"] == 1 else f" The audited kinds are {covered_share(facts)} of the version's rows."
    parts = [
        f"## Audit: {markdown_cell(facts['evaluation'])}",
        f"{facts['audited']:,} rows were answered by {facts['reviewers']} reviewers who did not see the labels "
        "(`earmark people audit`). Precision is the share of rows whose label most of them gave; in brackets, 95 %."
        f"{covered}",
        audit_table(facts).markdown(),
    ]
    if alone := facts.get("alone"):  # older records have none
        parts += ["How often one reviewer alone gives the label of these rows:", alone_table(facts, alone).markdown()]
    return "\n\n".join(parts) + "\n"


def audit_table(facts: AuditFacts) -> ResultTable:
    """Tabulate the confirmed labels of an audit by label and stratum, with the precision of the whole below."""
    verdicts = ("confirmed", "refuted", "disputed", "unsure")
    rows = []
    for cell in facts["cells"]:
        given = (cell["confirmed"], cell["refuted"], cell["disputed"], cell["unsure"])
        rows.append((cell["label"], cell["stratum"], cell.get("rows"), sum(given), *given, _precision(cell)))
    return ResultTable(
        "",
        ("label", facts["stratify"] or "rows", "drawn from", "audited", *verdicts, PRECISION),
        tuple(rows),
        footings=(("all, weighted", *[""] * (len(verdicts) + 3), _precision(facts["overall"])),),
        drop=("drawn from", "audited"),
    )


def alone_table(facts: AuditFacts, alone: Sequence[StratumFacts]) -> ResultTable:
    """Tabulate the share of single reviewers who give a row's label."""
    rows = tuple((one["stratum"], _precision(one)) for one in alone if one["precision"] is not None)
    return ResultTable("", (facts["stratify"] or "rows", ResultColumn("one reviewer alone", decimals=3)), rows)


PRECISION = ResultColumn("precision", decimals=3)


def _precision(share: PrecisionFacts) -> Interval | None:
    return interval({"value": share["precision"], "low": share["low"], "high": share["high"]})


def section(records: list[EvaluationFacts]) -> str:
    """Render the records as a section of a card; empty without records."""
    if not records:
        return ""
    columns = ("evaluation", "model", "splits", "samples", "metric", ResultColumn("figure", decimals=3))
    rows = tuple(
        (facts["evaluation"], _who(facts), ", ".join(facts["splits"]), facts["samples"], *_figure(facts))
        for facts in records
    )
    says = "Models measured on this version with `earmark eval run`; in brackets, 95 %."
    return f"## Evaluations\n\n{ResultTable('', columns, rows, says).markdown()}\n"


def _who(facts: EvaluationFacts) -> str:
    if not facts["annotator"]:
        return f"scores of {facts['scores']}" + (" a clip" if facts.get("per_clip") else "")
    ways = [facts["mode"], "both orders" if facts.get("both_orders") else None, facts["language"]]
    ways += [f"without the {facts['blind']}" if facts.get("blind") else None]
    return ", ".join([facts["annotator"], *(way for way in ways if way)])


def _figure(facts: EvaluationFacts) -> tuple[str, Interval | None]:
    metrics = facts["rows"][0]["metrics"]
    name = next((name for name in HEADLINES if name in metrics), next(iter(metrics)))  # a plug-in's kind has its own
    return HEADLINES.get(name, name), interval(metrics[name])
