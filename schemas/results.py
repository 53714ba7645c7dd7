"""Type the records of evaluations: `evaluation.json`, `comparison.json`, `table.json`, `score.json` and the boards.

`NotRequired` keys are missing in records of some kinds, or of earlier releases.
"""

from typing import Any, NotRequired, TypedDict


class VersionFacts(TypedDict):
    """Identity of a record's version."""

    corpus: str
    version: str
    manifest_sha256: str


class MetricFacts(TypedDict):
    """Value with the ends of its 95 % interval; None if undefined."""

    value: float | None
    low: float | None
    high: float | None


class GapFacts(MetricFacts):
    """Difference to a model, named by `to` in tables."""

    p: float | None
    p_holm: NotRequired[float | None]
    to: NotRequired[str | None]


class PairGap(GapFacts):
    """Difference of a pair of models, first minus second."""

    metric: str
    first: str
    second: str


class ClipMean(MetricFacts):
    """Mean over clips."""

    clips: int
    difference: NotRequired[GapFacts]


class ResultRow(TypedDict):
    """Metrics of a group of samples, a baseline or a model."""

    group: str | None
    value: str
    samples: int
    answered: int
    small: bool
    metrics: dict[str, MetricFacts]


class CycleFacts(TypedDict):
    """Cycles among triplets."""

    triplets: int
    decided: int
    cycles: int
    per_100: float | None
    low: float | None
    high: float | None


class CountedFacts(TypedDict):
    """Results of predictions."""

    samples: int
    answered: int
    left_out: dict[str, int]  # samples in no row, by reason
    unanswered: dict[str, int]  # samples by reason
    inconsistent: int  # samples with different answers in the two orders, counted as wrong
    ties: int  # predicted ties
    threshold: dict[str, Any] | None
    rows: list[ResultRow]  # of all, of each group, over the means by system, of each baseline
    cycles: NotRequired[CycleFacts]
    accuracy_answered: NotRequired[float]  # without the unanswered samples


class AskedFacts(TypedDict):
    """The measured model, or file of scores."""

    mode: str | None
    annotator: str | None
    scores: str | None
    scores_sha256: NotRequired[str]
    order: NotRequired[str]
    per_clip: NotRequired[bool]
    reachable: NotRequired[dict[str, float]]
    measured_by: NotRequired[dict[str, Any]]
    prompts: NotRequired[dict[str, str]]
    both_orders: NotRequired[bool]
    draws: NotRequired[int]
    blind: NotRequired[str | None]
    spent_usd: NotRequired[float]


class EvaluationFacts(VersionFacts, AskedFacts, CountedFacts):
    """`evaluation.json`."""

    evaluation: str
    kind: str
    says: str
    splits: list[str]
    language: str | None
    limit: int | None
    without: NotRequired[list[str]]


class ComparedEvaluation(TypedDict):
    """Models on an evaluation, or on its means by `level`."""

    evaluation: str
    kind: str
    level: NotRequired[str]
    headline: str
    left_out: int
    unanswered: int
    samples: int
    rows: list[ResultRow]
    differences: list[PairGap]


class ModelRank(TypedDict):
    """A model's ranks over the evaluations of a comparison."""

    model: str
    mean_rank: float
    borda: float
    ranks: dict[str, float]


class ComparisonFacts(VersionFacts):
    """`comparison.json`."""

    models: list[str]
    runs: dict[str, dict[str, str]]
    test: str
    evaluations: list[ComparedEvaluation]
    ranking: list[ModelRank]
    without: list[str]


class CellFacts(MetricFacts):
    """Cell of a table of models."""

    samples: int
    difference: NotRequired[GapFacts]


class ColumnFacts(TypedDict):
    """Column of a table of models."""

    heading: str
    over: str
    metric: str
    evaluations: list[str]
    samples: int
    scale: int
    decimals: int


class TableRow(TypedDict):
    """Row of a table of models."""

    model: str
    cells: list[CellFacts | None]


class TableFacts(VersionFacts):
    """`table.json`."""

    title: str
    first: list[str]
    models: dict[str, list[str]]
    baselines: dict[str, str]
    intervals: bool
    best: bool
    columns: list[ColumnFacts]
    rows: list[TableRow]
    notes: list[str]


class FadFacts(MetricFacts):
    """Fréchet audio distance, its interval (jackknife) for this number of samples, without its bias."""

    # extrapolated to infinitely many samples; may be below 0. None for fewer than 20 samples.
    infinity: float | None
    samples: int  # number of embeddings
    reference: int | None  # number of the reference's embeddings; None if only its statistics are known
    dimensions: int  # of an embedding


class GroupFigures(TypedDict):
    """Measures of a system's clips of a group of prompts."""

    ccs: ClipMean | None
    clap: ClipMean | None
    fad: FadFacts | None
    kad: NotRequired[MetricFacts | None]
    scores: NotRequired[dict[str, ClipMean | None]]


class ScoreGroup(GroupFigures):
    """Group of a submission's record."""

    group: str
    clips: int


class LackingScore(TypedDict):
    """Clips without a score, and the first of them."""

    clips: int
    first: str
    why: str


class ScoreFacts(VersionFacts):
    """`score.json`."""

    system: str
    team: str | None
    track: str | None
    topline: NotRequired[bool]
    prompts: int
    clips: int
    lacking: dict[str, str]
    unused_files: int
    measured_by: dict[str, Any]
    groups: list[ScoreGroup]
    concepts: dict[str, float]
    concepts_asked: int
    checks: dict[str, int]
    unanswered: dict[str, int]
    unscored: NotRequired[dict[str, LackingScore]]


class BoardRow(GroupFigures):
    """A system's measures on a board."""

    system: str


class BoardGroup(TypedDict):
    """Systems side by side on a group of prompts."""

    group: str
    clips: int
    rows: list[BoardRow]


class SystemRank(TypedDict):
    """Place of a system on a board."""

    system: str
    team: str | None
    track: str | None
    rank: int | None
    points: int | None
    finalist: bool
    baseline: bool
    topline: bool


class Opinion(TypedDict):
    """Mean opinion score, with half the width of its 95 % interval."""

    mos: float
    sd: NotRequired[float | None]
    half_width: float | None
    ratings: int
    annotators: int


class SystemOpinion(Opinion):
    """Mean opinion of a system, of all listeners and of experts."""

    system: str
    question: str
    experts: NotRequired[Opinion | None]


class ListeningFacts(TypedDict):
    """`mos.json` of a listening test; on a board with awards."""

    study: str
    manifest_sha256: str
    mos: list[SystemOpinion]
    left_out: NotRequired[list[str]]
    plan: NotRequired[str]  # digest of the keys of its pages, which every start draws anew
    clips: NotRequired[dict[str, list[str]]]  # SHA-256 of the rated clips by system; records of 1.0.0 have none
    awards: NotRequired[dict[str, str]]
    others: NotRequired[list[str]]  # on a board, systems that were scored with other clips since


class BoardFacts(VersionFacts):
    """`leaderboard.json`."""

    systems: list[str]
    measured_by: dict[str, Any]
    test: str
    ranked_on: str
    groups: list[BoardGroup]
    differences: list[PairGap]
    ranking: list[SystemRank]
    finalists: int | None
    listening: list[ListeningFacts]
    checks: dict[str, dict[str, int]]
    unanswered: dict[str, int]
    unscored: dict[str, dict[str, LackingScore]]
