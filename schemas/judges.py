"""Config of judges: gold by which they are qualified before they are paid, and juries of several (`[[judges]]`)."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, model_validator

from earmark.schemas.annotation import Asked
from earmark.schemas.config import BuildConfig
from earmark.schemas.places import without_place, without_places
from earmark.schemas.tables import Column, Table
from earmark.schemas.toml import Model, changed, only

Control = Literal["same", "noise", "clipping", "lowpass", "silence", "prompt"]
CONTROLS: tuple[Control, ...] = ("same", "noise", "clipping", "lowpass", "silence", "prompt")
STOPS = ("least", "most_lean")
DEGRADED: tuple[Control, ...] = ("noise", "clipping", "lowpass", "silence")


class Passing(Model):
    """Number of questions, and limits for a judge to pass before its first row."""

    each: int = Field(default=20, ge=1, le=10_000, description="Questions of each control, drawn by seeded hash.")
    least: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Least share of right answers in each dimension; below it the build stops. No answer is wrong.",
    )
    most_lean: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Most by which the share for what is shown first may differ from that for what is shown second.",
    )


class Qualify(Passing):
    """Questions about pairs, and the limits."""

    gold: str | None = Field(default=None, description="A table of samples with their truth; its columns: the guide.")
    controls: tuple[Control, ...] = Field(
        default=CONTROLS,
        description="What the build makes of its own rows: the same clip twice (`same`), a clip beside itself with "
        "`noise`, `clipping`, `lowpass` or `silence`, a clip beside one of another prompt (`prompt`).",
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.controls and self.gold is None:
            raise ValueError("expected gold, controls, or both: without them there is nothing to ask")
        if len(set(self.controls)) < len(self.controls):
            raise ValueError("expected each control once")
        return self


class Judging(Asked):
    """A judge; a corpus declares `qualify`."""

    if TYPE_CHECKING:
        qualify: Any

    @property
    def label(self) -> str:
        """Return the judge's name in tables."""
        return self.annotator


def judge_identity(judge: dict[str, Any], decides: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a recorded judge that decides requests and rows, without the limits that stop a build."""
    kept = only(*(name for name in (*decides, "name", "qualify") if name in judge))(judge)
    return changed(changed(kept, "annotator", _without_place), "qualify", _gold_identity)


def _without_place(annotator: str) -> str:
    return f"scorer:{without_place(annotator[7:])}" if annotator.startswith("scorer:") else annotator


def _gold_identity(qualify: dict[str, Any] | None) -> Any:
    kept = qualify and {name: value for name, value in qualify.items() if name not in STOPS}
    return changed(kept, "gold", without_places)


Jury = Literal["unanimity", "majority", "weighted"]
"""The rule to join several judges."""


class Qualified(BuildConfig):
    """A build config whose `[judge]` may have to answer gold."""

    if TYPE_CHECKING:
        judge: Judging

    def jurors(self) -> tuple[Any, ...]:
        """All judges; the one there is, where there are not several."""
        return (self.judge,)

    def by_judge(self) -> dict[str, Self]:
        """Return the config that asks each judge alone, by the judge's label."""
        return {self.judge.label: self}

    def golds(self) -> list[str]:
        """Return the tables of gold that judges are asked about, each once."""
        return sorted({gold for one in self.jurors() if (gold := getattr(one.qualify, "gold", None))})


class Judged(Qualified):
    """A build config with one `[judge]`, or several `[[judges]]` that share what `[judge]` says."""

    if TYPE_CHECKING:
        judges: tuple[Judging, ...]
        jury: Jury

    @model_validator(mode="before")
    @classmethod
    def _share_settings(cls, values: Any) -> Any:
        """Each judge has what `[judge]` says and it does not say itself."""
        if not isinstance(values, dict) or not isinstance(shared := values.get("judge", {}), dict):
            return values
        judges = values.get("judges")
        if not isinstance(judges, list | tuple) or not judges or not all(isinstance(one, dict) for one in judges):
            return values
        names = ("annotator", "model")
        if any(shared.get(key) not in (None, judges[0].get(key)) for key in names):
            raise ValueError("judge.model: expected none beside [[judges]], each of which has its own")
        merged = [{**{key: shared[key] for key in shared if key not in (*names, "name")}, **one} for one in judges]
        return {**values, "judge": merged[0], "judges": merged}

    @model_validator(mode="after")
    def _jury_fits(self) -> Self:
        for label, count in Counter(one.label for one in self.jurors()).most_common(1):
            if count > 1:
                raise ValueError(f"judges: expected each judge once, found {label} {count} times; give each a name")
        if self.jury != "majority" and len(self.judges) < 2:
            raise ValueError("jury: expected two or more [[judges]]")
        if self.jury == "weighted" and not all(one.qualify for one in self.judges):
            raise ValueError("jury = 'weighted' needs [judge.qualify], which measures what each vote weighs")
        return self

    def jurors(self) -> tuple[Any, ...]:
        """All judges; the one there is, where there are not several; none where labels are made already."""
        return self.judges or ((self.judge,) if self.judge else ())

    def by_judge(self) -> dict[str, Self]:
        """Return the config that asks each judge alone, by the judge's label."""
        if len(self.judges) < 2:
            return super().by_judge()
        return {
            one.label: self.model_copy(update={"judge": one, "judges": (), "jury": "majority"}) for one in self.judges
        }

    def judges_identity(self, values: dict[str, Any], decides: tuple[str, ...]) -> dict[str, Any]:
        """Return `recorded()`, of each judge with the settings that decide a question or a label."""
        kept = partial(judge_identity, decides=decides)
        values = changed(values, "judge", lambda judge: judge and kept(judge))
        return changed(values, "judges", lambda judges: [*map(kept, judges)])


class QualificationRow(TypedDict):
    """Count the judges' answers to gold, given before the first row; only with `[judge.qualify]`."""

    judge: Annotated[str, Column("The judge: backend and model, and its name if it has one.", names="annotator")]
    domain: Annotated[str, "Which questions: those of a domain, or all."]
    dimension: Annotated[str, "What was asked."]
    control: Annotated[str, "gold, a control of `judge.qualify.controls`, or all."]
    questions: Annotated[int, "Questions that were asked."]
    requests: Annotated[int, "Requests about them, in both orders where there are two."]
    answers: Annotated[int, "Requests that have an answer."]
    known: Annotated[int, "Requests whose right answer is known."]
    accuracy: Annotated[
        float | None,
        Column(
            "Share of these with the right answer; a tie is wrong where there is a better, and so is no answer.",
            unit="0 to 1",
        ),
    ]
    low: Annotated[float | None, Column("Lower end of its interval of 95 %, by question.", unit="0 to 1")]
    high: Annotated[float | None, Column("Upper end of its interval of 95 %.", unit="0 to 1")]
    agreed: Annotated[int, "Questions with a known truth to which both orders got one answer."]
    agreed_accuracy: Annotated[float | None, Column("Share of these that is right.", unit="0 to 1")]
    share_first: Annotated[
        float | None, Column("Share of answers for what was shown first (of yes and no: yes).", unit="0 to 1")
    ]
    share_second: Annotated[
        float | None, Column("Share of answers for what was shown second (of yes and no: no).", unit="0 to 1")
    ]
    share_tie: Annotated[float | None, Column("Share of ties.", unit="0 to 1")]
    tpr: Annotated[float | None, Column("Where the first is better: share of answers that say so.", unit="0 to 1")]
    fpr: Annotated[float | None, Column("Where the second is better: share of answers for the first.", unit="0 to 1")]
    weight: Annotated[float | None, "Log-odds of the agreed accuracy, by which a weighted jury counts its vote."]


QUALIFICATION = Table(
    "qualification", row=QualificationRow, key=("judge", "domain", "dimension", "control"), splits=False, optional=True
)
