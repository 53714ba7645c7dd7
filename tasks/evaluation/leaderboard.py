"""Compare scored submissions on a version, and rank them by ATTM's rule: `earmark eval rank`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from earmark.schemas import results
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.tasks.evaluation.comparison import PLOT, TEST, PlotBlock, as_svg, difference_table
from earmark.tasks.evaluation.entries import MEASURES, Entry, borda_points, borda_ranks, two_stage_ranks
from earmark.tasks.evaluation.influence import mean, pair_differences
from earmark.tasks.evaluation.results import metric_column
from earmark.tasks.evaluation.scorers import ScoredRow, names_of, score_in
from earmark.tasks.evaluation.submission import ALL, CLIPS, MEANS, RECORD, generation_of
from earmark.tasks.evaluation.units import Units
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.folder import records_of, version_facts, write_record
from earmark.tasks.store.result_table import Interval, ResultColumn, ResultPage, ResultTable, Value, interval
from earmark.tasks.store.versions import Store, Version

BOARD, EVERY = "leaderboard.json", "all"
OVERALL, ORDINALS = "overall", {1: "st", 2: "nd", 3: "rd"}
OPINIONS = "mos.json"  # of a listening test, beside the records of systems
MOST_UNANSWERED = 0.02
"""Largest share of unanswered concepts and of unscored clips: figures of other questions or clips rank by luck."""


def rank_submissions(
    version: Version,
    store: Store,
    systems: Sequence[str],
    finalists: int | None,
    out: Path | None,
    awards: Mapping[str, int] | None = None,
) -> tuple[results.BoardFacts, Path]:
    """Compare the records of systems, and write the board: tables, tests, ranks and a plot. Measures nothing.

    Return the facts of `leaderboard.json`, and the folder.

    Args:
        systems: their names, or folders of records; `all` for every record of the version.
        finalists: number of systems to go on, if so many beat the baseline; None for no finalists.
        awards: number of systems of a track that a listening test awards.

    Raises:
        InputError: fewer than two systems, or incomparable records: of other prompts, or measured by other models.
    """
    records = scored(version, store, systems)
    ranked_on = ranked_group(find_corpus(version.corpus), records[0][0])
    ranks = ranking([one for one, _ in records], finalists, ranked_on)
    facts: results.BoardFacts = {
        **version_facts(version),
        "systems": [one["system"] for one, _ in records],
        "measured_by": records[0][0]["measured_by"],
        "test": TEST,
        "ranked_on": ranked_on,
        "groups": _tables([one for one, _ in records], ranked_on),
        "differences": _differences({one["system"]: folder for one, folder in records}, ranked_on),
        "ranking": ranks,
        "finalists": finalists,
        "listening": _opinions(version, store, records, ranks, awards or {}),
        "checks": {one["system"]: one["checks"] for one, _ in records if one["checks"]},
        "unanswered": {one["system"]: sum(one["unanswered"].values()) for one, _ in records if one["unanswered"]},
        "unscored": {one["system"]: lacking for one, _ in records if (lacking := one.get("unscored"))},
    }
    key = hashlib.sha256(json.dumps(facts["systems"]).encode()).hexdigest()[:8]
    folder = out or records_of(store, version) / f"leaderboard-{key}"
    return facts, write_record(folder, BOARD, facts, {**board_page(facts).files(), **_plots(facts)})


def ranked_group(corpus: Corpus, record: results.ScoreFacts) -> str:
    """Return the group of prompts whose figures rank systems."""
    wanted = generation_of(corpus).ranked
    return wanted if wanted in [one["group"] for one in record["groups"]] else ALL


def scored(version: Version, store: Store, systems: Sequence[str]) -> list[tuple[results.ScoreFacts, Path]]:
    """Return the comparable records of systems, each with its folder; raise as `rank_submissions`."""
    known: dict[str, tuple[results.ScoreFacts, Path]] = {}
    every = [*systems] == [EVERY]
    paths = [path / RECORD for path in map(Path, systems) if (path / RECORD).is_file()]
    for path in [*sorted(records_of(store, version).glob(f"*/{RECORD}")), *paths]:
        facts: results.ScoreFacts = json.loads(path.read_bytes())
        if facts["manifest_sha256"] == version.manifest.digest():
            known[facts["system"] if path not in paths else str(path.parent)] = facts, path.parent
        elif path in paths:
            raise InputError(
                f"{path.parent}: expected scores on {version.corpus}@{version.name}, found those on another "
                "version; score its submissions on this one"
            )
    names = [*known] if every else [*systems]
    if missing := [name for name in names if name not in known and str(Path(name)) not in known]:
        listed = ", ".join(known) or "none"
        raise InputError(
            f"{missing[0]}: no record of this system on {version.corpus}@{version.name}; score it first. "
            f"Records: {listed}"
        )
    records = [known.get(name) or known[str(Path(name))] for name in names]
    titles = [one["system"] for one, _ in records]
    if len(set(titles)) < 2 or len(set(titles)) < len(titles):
        raise InputError(f"expected two systems or more of different names, found {', '.join(titles)}")
    _check_alike([one for one, _ in records])
    return records


def _opinions(
    version: Version,
    store: Store,
    records: Sequence[tuple[results.ScoreFacts, Path]],
    ranks: Sequence[results.SystemRank],
    awards: Mapping[str, int],
) -> list[results.ListeningFacts]:
    """Return opinions on these systems from listening tests on this very content (`study status --record`).

    A system that was scored with other clips since gets no award for those that people heard.
    """
    systems, found = {one["system"] for one in ranks}, list[results.ListeningFacts]()
    made = {one["system"]: {*pq.read_table(path / CLIPS)["clip_sha256"].to_pylist()} for one, path in records}
    for path in sorted(records_of(store, version).glob(f"*/{OPINIONS}")):
        test: results.ListeningFacts = json.loads(path.read_bytes())
        rows = [row for row in test["mos"] if row["system"] in systems]
        if rows and test["manifest_sha256"] == version.manifest.digest():
            others = sorted(
                name for name, heard in test.get("clips", {}).items() if {*heard} - made.get(name, {*heard})
            )
            current = [row for row in rows if row["system"] not in others]
            found.append({**test, "mos": rows, "awards": awarded(current, ranks, awards), "others": others})
    return found


def awarded(
    rows: Sequence[results.SystemOpinion], ranks: Sequence[results.SystemRank], awards: Mapping[str, int]
) -> dict[str, str]:
    """Return each system's award: of a track's systems, the first by MOS on `overall`, or on the first question."""
    tracks = {one["system"]: one["track"] for one in ranks if one["team"]}
    if unknown := sorted(awards.keys() - {*tracks.values()}):
        known = ", ".join(sorted({track for track in tracks.values() if track})) or "none"
        raise InputError(f"--award {unknown[0]}: no system entered this track; tracks: {known}")
    questions = [row["question"] for row in rows]
    question = OVERALL if OVERALL in questions or not questions else questions[0]
    mos = {row["system"]: row["mos"] for row in rows if row["question"] == question}
    found = {}
    for track, count in awards.items():
        entered = [system for system in mos if tracks.get(system) == track]
        for place, system in enumerate(sorted(entered, key=lambda name: -mos[name])[:count], 1):
            found[system] = f"{track} {place}{ORDINALS.get(place, 'th')}"
    return found


def _check_alike(records: Sequence[results.ScoreFacts]) -> None:
    """Refuse records measured by other models, with another reference or on other prompts."""
    for one in records:
        unanswered, asked = sum(one["unanswered"].values()), one["concepts_asked"]
        if unanswered > MOST_UNANSWERED * asked:
            raise InputError(
                f"{unanswered:,} of {asked:,} concepts of '{one['system']}' have no answer, so its CCS is "
                "that of other concepts: score it again, answers are kept"
            )
        for name, lacking in one.get("unscored", {}).items():
            if lacking["clips"] > MOST_UNANSWERED * one["clips"]:
                raise InputError(
                    f"{lacking['clips']:,} of {one['clips']:,} clips of '{one['system']}' have no score "
                    f"'{name}', the first is '{lacking['first']}' ({lacking['why']}): score it again, numbers are kept"
                )
    first = records[0]
    for other in records[1:]:
        for name, what in MEASURED_BY.items():
            if _content(first["measured_by"].get(name)) != _content(other["measured_by"].get(name)):
                raise InputError(
                    f"'{first['system']}' and '{other['system']}' were measured with different {what}: "
                    "score one of them again"
                )
        if first["measured_by"].get("length_s") != other["measured_by"].get("length_s"):
            raise InputError(
                f"the clips of '{first['system']}' and '{other['system']}' were to have different lengths: "
                "score one of them again with the other's --length-s"
            )
        if {*first["lacking"]} != {*other["lacking"]}:
            raise InputError(
                f"'{first['system']}' was scored on {first['clips']:,} prompts, '{other['system']}' on "
                f"{other['clips']:,}, not the same: complete both, or give both the same clips with --partial"
            )


MEASURED_BY = {"clap": "--clap", "reference": "--reference", "judge": "--annotator", "scores": "--scorer"}
"""Parts of a record that identify its models and references, and their options."""


def _content(who: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the identity of a measure: the content of models and references, without their paths."""
    return (who or None) and {name: value for name, value in who.items() if "sha256" not in who or name == "sha256"}


def _tables(records: Sequence[results.ScoreFacts], ranked_on: str) -> list[results.BoardGroup]:
    """Return each group's figures of each system, from the ranked group on."""
    tables: list[results.BoardGroup] = []
    for group in sorted(records[0]["groups"], key=lambda one: one["group"] != ranked_on):
        tables.append({"group": group["group"], "clips": group["clips"], "rows": []})
        for one in records:
            held = next(held for held in one["groups"] if held["group"] == group["group"])
            figures = results.BoardRow(system=one["system"], fad=held["fad"], clap=held["clap"], ccs=held["ccs"],
                               kad=held.get("kad"), scores=held.get("scores", {}))  # fmt: skip
            tables[-1]["rows"].append(figures)
    return tables


def _differences(folders: Mapping[str, Path], group: str) -> list[results.PairGap]:
    """Compare each pair of systems on the same prompts: only for means over clips, so not FAD."""
    tables: dict[str, list[ScoredRow]]
    tables = {name: pq.read_table(path / CLIPS).to_pylist() for name, path in folders.items()}
    rows = {name: {row["id"]: row for row in table if group == ALL or group in row["groups"]}
            for name, table in tables.items()}  # fmt: skip
    differences: list[results.PairGap] = []
    first = next(iter(rows.values()))
    for measure in (*MEANS, *names_of(next(iter(first.values())))):
        values = {name: {key: _of_clip(row, measure) for key, row in by_id.items()} for name, by_id in rows.items()}
        shared = [key for key in first if all(by_id.get(key) is not None for by_id in values.values())]
        if not shared:
            continue
        means = {name: mean(np.array([by_id[key] for key in shared], float)) for name, by_id in values.items()}
        differences += pair_differences(measure, means, Units.apart(len(shared)))
    return differences


def _of_clip(row: ScoredRow, measure: str) -> Any:
    return row[MEANS[measure]] if measure in MEANS else score_in(row, measure)


def ranking(records: Sequence[results.ScoreFacts], finalists: int | None, group: str = ALL) -> list[results.SystemRank]:
    """Rank systems by Borda points over FAD, CLAP score, CCS and the ranked scores, in two stages if there are teams.

    A topline has no rank, nor has a team's entry if another entry of the team in the same track beats it. Finalists are
    the first `finalists` systems that beat the baseline (without a team where others have one). Of equal points, the
    system with the better CLAP score goes first, then by CCS, FAD and name.
    """
    figures = {one["system"]: next(held for held in one["groups"] if held["group"] == group) for one in records}
    entries = {
        one["system"]: Entry(
            name=one["system"],
            team=one["team"],
            track=one["track"],
            fad=_value(figures[one["system"]]["fad"]),
            clap=_value(figures[one["system"]]["clap"]),
            ccs=_value(figures[one["system"]]["ccs"]),
            more=_ranked_scores(one, figures[one["system"]]),
        )
        for one in records
        if not one.get("topline")
    }
    teams = any(entry.team is not None for entry in entries.values())
    baselines = {name for name, entry in entries.items() if teams and entry.team is None}
    ranks = (two_stage_ranks if teams else borda_ranks)([*entries.values()])
    points = borda_points([entries[name] for name in ranks])
    best = min((ranks[name] for name in baselines), default=len(records) + 1)
    able = sorted((name for name in ranks if ranks[name] < best), key=lambda name: (ranks[name], *_tie(entries[name])))
    chosen = {*able[: finalists or 0]}
    rows: list[results.SystemRank] = [
        {
            "system": one["system"],
            "team": one["team"],
            "track": one["track"],
            "rank": ranks.get(one["system"]),
            "points": points.get(one["system"]),
            "finalist": one["system"] in chosen,
            "baseline": one["system"] in baselines,
            "topline": bool(one.get("topline")),
        }
        for one in records
    ]
    return sorted(rows, key=lambda row: (row["topline"], row["rank"] or len(rows) + 1, row["system"]))


def _tie(entry: Entry) -> tuple[float, float, float, str]:
    """Return the order of systems of equal points."""
    return -(entry.clap or 0), -(entry.ccs or 0), entry.fad or 0, entry.name


def _ranked_scores(record: results.ScoreFacts, figures: results.ScoreGroup) -> dict[str, float | None]:
    """Return the ranked scores, with signs so that higher is better."""
    counted = {name: who for name, who in record["measured_by"].get("scores", {}).items() if who["ranked"]}
    values = {name: _value(figures["scores"][name]) for name in counted}
    return {name: -value if value is not None and counted[name]["lower_is_better"] else value
            for name, value in values.items()}  # fmt: skip


def _value(measure: results.MetricFacts | None) -> float | None:
    return None if measure is None else measure["value"]


# -- for a reader -------------------------------------------------------------------------------------------------


def board_page(facts: results.BoardFacts) -> ResultPage:
    """Return the page of a board: ranks, listening tests, the figures of each group, differences."""
    ranks = ResultTable(
        f"ranks on {_titled(facts['groups'][0])}",
        ("rank", "system", "team", "track", "Borda points", "role"),
        tuple(
            (
                *(one["rank"], one["system"], one["team"] or "", one["track"] or "", one["points"]),
                "finalist" * one["finalist"] or "baseline" * one["baseline"] or "topline" * one["topline"],
            )
            for one in facts["ranking"]
        ),
        "Equal values of a measure take the worse place, equal points the better rank.",
    )
    heard = [
        table
        for test in facts["listening"]
        for table in opinion_tables(test["mos"], f"listening test {test['study']}, ", test.get("awards"))
    ]
    scores = facts["measured_by"].get("scores") or {}
    toplines = {one["system"] for one in facts["ranking"] if one["topline"]}
    groups = [
        ResultTable(
            _titled(table),
            ("system", *_columns(table["rows"][0], scores)),
            tuple((row["system"], *_figures(row)) for row in table["rows"] if row["system"] not in toplines),
            footings=tuple((row["system"], *_figures(row)) for row in table["rows"] if row["system"] in toplines),
            drop=("KAD", "FAD∞"),
        )
        for table in facts["groups"]
    ]
    notes = ["in brackets: 95 %"]
    notes += _notes(facts["groups"][0]["rows"][0]["fad"], facts["unanswered"], facts["unscored"], facts["checks"])
    if wanted := facts["finalists"]:
        found = sum(one["finalist"] for one in facts["ranking"])
        notes.append(f"finalists beat the baseline ({found} of {wanted} asked); CLAP, CCS and FAD part equal points")
    notes += [
        f"listening test {test['study']}: {', '.join(failed)} fail the checks and are in no figure"
        for test in facts["listening"]
        if (failed := test.get("left_out"))
    ]
    notes += [
        f"listening test {test['study']}: clips of {', '.join(others)} are not those that were scored: no award"
        for test in facts["listening"]
        if (others := test.get("others"))
    ]
    notes += [
        f"listening test {test['study']}: recorded by release 1.0.0, without clips: they may differ from those scored"
        for test in facts["listening"]
        if "clips" not in test
    ]
    return ResultPage(
        f"{facts['corpus']} {facts['version']}: {len(facts['systems'])} systems side by side",
        (ranks, *heard, *groups, difference_table("clips", facts["differences"])),
        tuple(notes),
        plots=tuple(_plots(facts)),
    )


def _titled(table: results.BoardGroup) -> str:
    return f"{table['group']} ({table['clips']:,} clips)"


def score_page(facts: results.ScoreFacts) -> ResultPage:
    """Return the page of a submission's record: its figures by group."""
    columns = [replace(one, best=None) for one in _columns(facts["groups"][0], {})]
    rows = tuple((one["group"], one["clips"], *_figures(one)) for one in facts["groups"])
    lacking = [f"{len(facts['lacking']):,} prompts have no usable clip and are left out"] if facts["lacking"] else []
    return ResultPage(
        f"{facts['corpus']} {facts['version']}, {facts['system']}",
        (ResultTable("", ("group", "clips", *columns), rows, drop=("KAD", "FAD∞")),),
        (
            *lacking,
            *_notes(
                facts["groups"][0]["fad"],
                facts["unanswered"],
                {facts["system"]: facts["unscored"]},
                {"checks": facts["checks"]},
            ),
        ),
    )


def opinion_tables(
    rows: Sequence[results.SystemOpinion], title: str = "", awards: Mapping[str, str] | None = None
) -> list[ResultTable]:
    """Tabulate mean opinions of a listening test for each question, best system first; experts beside all."""
    listeners = ["all", *(["experts"] if any(row.get("experts") for row in rows) else [])]
    columns = [column for name in listeners for column in _opinion_columns(name)]
    says = "In brackets: 95 % over annotators. SD: of the ratings."
    tables = []
    for question in dict.fromkeys(row["question"] for row in rows):
        asked = sorted((row for row in rows if row["question"] == question), key=lambda row: -row["mos"])
        cells = [
            (
                row["system"],
                *(cell for name in listeners for cell in _opinion(row if name == "all" else row.get("experts"))),
                *([awards.get(row["system"], "")] if awards else []),
            )
            for row in asked
        ]
        headings: list[str | ResultColumn] = ["system", *columns, *(["award"] if awards else [])]
        drop = tuple(f"{name} {column}" for name in reversed(listeners) for column in ("annotators", "ratings"))
        tables.append(ResultTable(f"{title}{question}", tuple(headings), tuple(cells), says, drop=drop))
    return tables


def _opinion_columns(listeners: str) -> list[ResultColumn]:
    mos, sd = (ResultColumn(name, decimals=3, over=listeners) for name in ("MOS", "SD"))
    return [mos, sd, *(ResultColumn(name, over=listeners) for name in ("ratings", "annotators"))]


def _opinion(row: results.Opinion | None) -> list[Value]:
    if row is None:
        return [None] * 4
    half = row["half_width"]
    ends = (None, None) if half is None else (row["mos"] - half, row["mos"] + half)
    return [Interval(row["mos"], *ends), row.get("sd"), row["ratings"], row["annotators"]]


def _columns(row: results.GroupFigures, scores: Mapping[str, Any]) -> list[ResultColumn]:
    """Return the columns of FAD, FAD∞, CLAP score, CCS and scorers' scores, by their descriptions."""
    names = [(name, scores.get(name, {}).get("lower_is_better", False)) for name in row["scores"]]
    return [
        *(metric_column("fad", ranked=True), ResultColumn("FAD∞", decimals=3, best="lowest")),
        ResultColumn("KAD", decimals=3, best="lowest"),
        *(metric_column(name, ranked=True) for name in MEASURES[1:]),
        *(ResultColumn(name, decimals=3, best="lowest" if lower else "highest") for name, lower in names),
    ]


def _figures(row: results.GroupFigures) -> list[Value]:
    return [
        *(interval(row["fad"]), row["fad"] and row["fad"]["infinity"], interval(row.get("kad"))),
        *map(interval, (row["clap"], row["ccs"], *row["scores"].values())),
    ]


def _notes(
    distance: results.FadFacts | None,
    unanswered: Mapping[str, int],
    unscored: Mapping[str, Mapping[str, results.LackingScore]],
    checks: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """Return notes for readers of a board or of a submission's record, a sentence each."""
    lines = []
    if distance is not None:
        lines.append(
            f"FAD of {distance['samples']:,} clips in {distance['dimensions']:,} dimensions is too large, the more the "
            "fewer clips: compare systems within a table, never tables; FAD∞ takes out a part of it"
        )
        lines.append("intervals of FAD are for this number of clips; its bias is not in them")
    if unanswered:
        lines.append(f"concepts without an answer of the judge are in no CCS: {sum(unanswered.values()):,}")
    lines += [
        f"{system}: clips without a score '{name}': {one['clips']:,}, the first is '{one['first']}' ({one['why']})"
        for system, held in unscored.items()
        for name, one in held.items()
    ]
    lines += [
        f"{name}: {', '.join(f'{fault} {count:,}' for fault, count in held.items())}"
        for name, held in checks.items()
        if held
    ]
    return lines


def _plots(facts: results.BoardFacts) -> dict[str, str]:
    """Draw the measures on one axis, and each score on its own, since their scales differ; return them by file."""
    group, name = facts["groups"][0], f"{facts['corpus']} {facts['version']}"
    rows = group["rows"]

    def drawn(measures: Mapping[str, Sequence[results.MetricFacts | None]]) -> str:
        blocks = [
            PlotBlock(facts["ranked_on"], measure, None, [(row["system"], group["clips"], value)
                                                          for row, value in zip(rows, values, strict=True) if value])
            for measure, values in measures.items() if None not in values
        ]  # fmt: skip
        return as_svg(name, blocks)

    measures: dict[str, list[results.MetricFacts | None]] = {
        "fad": [row["fad"] for row in rows], "clap": [row["clap"] for row in rows], "ccs": [row["ccs"] for row in rows]
    }  # fmt: skip
    scores = {f"score-{one}.svg": drawn({one: [row["scores"][one] for row in rows]}) for one in rows[0]["scores"]}
    return {PLOT: drawn(measures), **scores}
