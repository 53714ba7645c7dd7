"""Choose CLAP's two thresholds from labelled pairs of clip and text, by an error rate: `earmark eval calibrate`."""

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.files import read_regular
from earmark.schemas.rubric_tables import RubricSample
from earmark.tasks.audio.probe import Probe
from earmark.tasks.audio.similarity import DECIMALS, ClipText
from earmark.tasks.evaluation.scores import read_table
from earmark.tasks.pipeline.media import media_index, similarity_of
from earmark.tasks.store.result_table import Interval, ResultColumn, ResultTable, percent, wilson
from earmark.tasks.store.versions import Store

STEP = 10.0**-DECIMALS  # between two scores
FITS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class ScoredPairs(NamedTuple):
    """Similarities of labelled pairs, and the model that gave them."""

    model: str
    fitting: list[float]
    wrong: list[float]


class SimilarityBound(NamedTuple):
    """A threshold, and what it does to the labelled pairs."""

    name: str  # least or most
    value: float
    low: float
    high: float
    errors: int  # pairs of the kind that it must keep out, on its side
    of: int
    kept: int  # pairs of the kind that it is for, on its side
    kept_of: int


class Calibration(NamedTuple):
    """Both thresholds of a model."""

    model: str
    error: float
    least: SimilarityBound
    most: SimilarityBound
    between: int  # pairs that neither threshold takes

    @property
    def pairs(self) -> int:
        """Number of labelled pairs."""
        return self.least.of + self.most.of


def scored_pairs(given: Path, model: str | None, store: Store) -> ScoredPairs:
    """Measure the pairs of a table (`clip`, `text`, `label`), or read those of an audit's record.

    Args:
        given: the table, its clips relative to it; or the folder that `earmark people audit read` wrote.
        model: a CLAP model; None for an audit, whose version holds the scores.
        store: keeps scores, and holds the audited version.

    Raises:
        ConfigError: the model is missing, or stands beside an audit.
        InputError: a pair lacks a clip, a text or a label, or the audited version has no scores.
    """
    if given.is_dir():
        if model is not None:
            raise ConfigError("--model measures a table of pairs; an audited version holds its model's scores")
        return _audited(given, store)
    if model is None:
        raise ConfigError("expected --model, the CLAP model that measures the pairs")
    rows: list[dict[str, Any]] = read_table(given).to_pylist()
    labels = [FITS.get(str(row.get("label")).strip().casefold()) for row in rows]
    for at, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        if not row.get("clip") or not row.get("text") or label is None:
            raise InputError(f"{given}, row {at}: expected a clip, a text, and a label: yes if the text fits, or no")
    files = [given.parent / row["clip"] for row in rows]
    pairs = []
    for row, file, probe in zip(rows, files, media_index(store).look(files), strict=True):
        if not isinstance(probe, Probe):
            raise InputError(f"{file}: {probe.reason}: {probe.detail}")
        pairs.append(ClipText(probe.clip_sha256, file, str(row["text"])))
    return _by_label(model, similarity_of(store, model).cosines(pairs), labels)


def _audited(record: Path, store: Store) -> ScoredPairs:
    """Read the captions and swapped instructions that people were sure of; CLAP is not asked about changed details."""
    try:
        facts: dict[str, str] = json.loads(read_regular(record / "audit.json"))
    except (OSError, ValueError) as error:
        raise InputError(f"{record}: expected the record of an audit: {error}") from None
    version = store.find(f"{facts['corpus']}@{facts['version']}")
    if facts["evaluation"] != "alignment":
        raise InputError(f"{record}: expected an audit of 'alignment' of instruction-rubrics")
    columns = ["sample_id", "language", "similarity", "kind"]
    kept: Iterable[RubricSample] = chain.from_iterable(
        pq.read_table(file, columns=columns).to_pylist() for file in version.files("samples")
    )
    samples = {
        f"{row['sample_id']}-{row['language']}": row["similarity"]
        for row in kept
        if row["kind"] in ("pos", "swap") and row["similarity"] is not None
    }
    rows: list[dict[str, str]] = read_table(record / "rows.csv").to_pylist()
    sure = [row for row in rows if row["verdict"] in ("confirmed", "refuted")]
    told = [(samples[row["row"]], row["instead"] or row["label"]) for row in sure if row["row"] in samples]
    if not told:
        raise InputError(f"{record}: expected captions or swapped instructions with a similarity; name a model in "
                         "[similarity], without thresholds, and audit that version")  # fmt: skip
    model = str(version.manifest.config["similarity"]["model"])
    return _by_label(model, [one for one, _ in told], [label == "yes" for _, label in told])


def _by_label(model: str, scores: Sequence[float], labels: Sequence[bool | None]) -> ScoredPairs:
    fitting, wrong = ([score for score, label in zip(scores, labels, strict=True) if label is is_]
                      for is_ in (True, False))  # fmt: skip
    return ScoredPairs(model, fitting, wrong)


def calibrate(pairs: ScoredPairs, error: float) -> Calibration:
    """Choose the lowest `least` that a fresh wrong pair reaches at the error rate or less, and the highest `most` at or
    below which a fresh fitting pair scores at that rate or less.

    Each is one step beyond an order statistic of rank ⌈(n + 1)(1 - error)⌉: a fresh score of the same kind goes beyond
    it at a rate of `error` at most, whatever the distribution (split conformal prediction, Vovk et al. 2005).

    Raises:
        InputError: there are too few pairs of a kind for the rate.
    """
    least, low, high = _beyond(pairs.wrong, error, "a text that does not fit")
    most, *ends = _beyond([-score for score in pairs.fitting], error, "a text that fits")
    bounds = least, -most
    taken = [[sum(score >= least for score in scores) for scores in (pairs.wrong, pairs.fitting)],
             [sum(score <= -most for score in scores) for scores in (pairs.fitting, pairs.wrong)]]  # fmt: skip
    wrong, fitting = len(pairs.wrong), len(pairs.fitting)
    between = sum(bounds[1] < score < bounds[0] for score in (*pairs.wrong, *pairs.fitting))
    return Calibration(
        pairs.model,
        error,
        SimilarityBound("least", bounds[0], low, high, taken[0][0], wrong, taken[0][1], fitting),
        SimilarityBound("most", bounds[1], -ends[1], -ends[0], taken[1][0], fitting, taken[1][1], wrong),
        between,
    )


def _beyond(scores: Sequence[float], error: float, what: str) -> tuple[float, float, float]:
    """Return the threshold above scores, with the 95 % interval of the quantile that it stands for."""
    from scipy.stats import quantile_test  # here: loading it takes longer than most commands

    rank = math.ceil((len(scores) + 1) * (1 - error) - 1e-9)
    if rank > len(scores):
        least = math.ceil(1 / error - 1e-9) - 1
        raise InputError(
            f"for an error of {error:g}, expected {least:,} pairs or more with {what}, found {len(scores)}"
        )
    ends = quantile_test(scores, p=1 - error).confidence_interval(0.95)
    low, high = (bound if math.isnan(end) else float(end) for end, bound in zip(ends, (-1.0, 1.0), strict=True))
    return round(sorted(scores)[rank - 1] + STEP, DECIMALS), low, high


def calibration_table(found: Calibration) -> ResultTable:
    """Tabulate both thresholds, their errors and what they keep."""
    rows = (("least: a caption fits", found.least), ("most: a swap is wrong", found.most))
    return ResultTable(
        f"Thresholds by {found.pairs:,} pairs, errors of {found.error:.3g} at most",
        ("threshold", ResultColumn("value", decimals=DECIMALS), percent("errors"), percent("kept")),
        tuple(
            (name, Interval(one.value, one.low, one.high), wilson(one.errors, one.of), wilson(one.kept, one.kept_of))
            for name, one in rows
        ),
        says="Errors: of wrong texts, those that score `least` or more; of fitting ones, `most` or less. Kept: of the "
        "others, in brackets the 95 % intervals.",
    )


def config_lines(found: Calibration) -> str:
    """Write the thresholds as a config takes them."""
    by = f"earmark eval calibrate: {found.pairs} labelled pairs, errors of {found.error:.3g} at most"
    return (
        "# in [[sources]] like these pairs:\n"
        f"verify = {{ least = {found.least.value:g}, most = {found.most.value:g} }}\n\n"
        f'[similarity]\nmodel = "{found.model}"\nset_by = "{by}"'
    )
