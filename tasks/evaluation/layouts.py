"""Read layouts of tables: the shipped ones (`tables/*.toml`), and those of users."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from earmark.schemas.errors import ConfigError
from earmark.schemas.toml import first_fault, nearest, read_toml

SHIPPED = Path(str(resources.files("earmark.tasks.evaluation"))) / "tables"
Metric = Literal["accuracy", "error", "cycles", "lcc", "srcc", "ktau", "mse", "auroc", "eer", "samples"]
Condition = str | int | float | bool | list[str | int | float | bool]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableRules(StrictModel):
    """Rules that decide the figures, printed under the table."""

    ties: Literal["wrong", "half"] = "wrong"  # a predicted tie where people prefer a clip
    unanswered: Literal["wrong", "left-out"] = "wrong"
    true_ties: Literal["kept", "left-out"] = "kept"  # samples that people call a tie
    arena: Literal["overall", "musicality", "alignment", "sum"] = "overall"

    def said(self) -> dict[str, str]:
        """Return a sentence for each rule."""
        ties = {"wrong": "counts as wrong", "half": "counts one half"}[self.ties]
        empty = {"wrong": "counts as wrong", "left-out": "is left out for that model"}[self.unanswered]
        true = {"kept": "stays, and only a predicted tie is right", "left-out": "is left out"}[self.true_ties]
        arena = "musicality plus alignment" if self.arena == "sum" else self.arena
        return {
            "ties": f"rule ties={self.ties}: a predicted tie where the truth is none {ties}",
            "unanswered": f"rule unanswered={self.unanswered}: a sample without a readable answer {empty}; it is in no "
            "correlation",
            "true_ties": f"rule true_ties={self.true_ties}: a sample whose truth is a tie {true}",
            "arena": f"rule arena={self.arena}: in files of clip scores, an overall preference goes by {arena}",
        }

    @property
    def overall(self) -> tuple[str, ...]:
        """Return the columns of clip scores that stand for an overall preference."""
        return ("musicality", "alignment") if self.arena == "sum" else (self.arena,)


class LayoutColumn(StrictModel):
    """A column of a layout, or with `by` one for each group."""

    heading: str = "all"
    over: str = ""  # a heading above those of several columns
    evaluation: str | list[str] | None = None  # of several, the mean of their values
    metric: Metric | None = None
    where: dict[str, Condition] = {}  # by column of the samples: a value, several, or bounds such as ">= 10 < 30"
    by: str | None = None  # a column of the samples, or several as a+b
    mean: str | None = None  # a column of the samples: the unweighted mean over its groups
    level: str | None = None  # correlate means by this column, such as system, in place of samples
    percent: bool | None = None
    decimals: int | None = Field(default=None, ge=0, le=6)


class TableLayout(StrictModel):
    """A table of models: its columns, and the form of its cells."""

    title: str
    corpus: str | None = None
    first: list[str] = ["Model"]  # headings of a row's name; of several, the name is in parts, joined by |
    evaluation: str | list[str] | None = None  # this and the next four: of columns without their own
    metric: Metric | None = None
    where: dict[str, Condition] = {}  # with the column's own
    percent: bool = False  # whether shares are numbers from 0 to 100
    decimals: int = 3
    counts: bool = False  # whether headings tell the number of samples
    best: bool = True  # whether the best cell of a column is bold, and the second underlined
    baselines: Literal["shown", "hidden"] = "shown"  # the rows that others are compared with
    rules: TableRules = TableRules()
    columns: tuple[LayoutColumn, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()


def shipped_layouts() -> dict[str, Path]:
    """Return the files of the shipped layouts of tables of models, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml")) if not path.with_suffix(".sql").exists()}


def choose_layout(
    table: str | None, evaluation: str | None, by: Sequence[str], metrics: Sequence[str], rules: Sequence[str]
) -> TableLayout:
    """Return the named layout, or one with a column for all samples and one for each group, under these rules.

    Raises:
        ConfigError: as `read_layout`; a table is given with options of its own, or a rule is unknown.
    """
    if table is not None and (evaluation or by or metrics):
        raise ConfigError(
            "--table has its own evaluations, groups and metrics: leave --evaluation, --by and --metric out"
        )
    if table is not None:
        values = _layout_values(table)
    else:
        columns = [
            {"metric": metric, "over": metric or ""} | ({"by": group} if group else {})
            for metric in metrics or (None,)
            for group in ("", *by)
        ]
        title = f"by {', '.join(by)}" if by else "all samples"
        values = {"title": title, "evaluation": evaluation, "columns": columns}
    chosen = dict(one.partition("=")[::2] for one in rules)
    return _checked({**values, "rules": {**values.get("rules", {}), **chosen}}, table or "--by, --metric and --rule")


def _layout_values(name: str) -> dict[str, Any]:
    """Return the values of a shipped layout by its name, or of the user's by its path, which ends in `.toml`."""
    known = shipped_layouts()
    if name not in known and not name.endswith(".toml"):
        raise ConfigError(f"--table: no table '{name}'{nearest(name, known)}; or give a .toml of yours")
    return _values(known.get(name) or Path(name))


def _checked(values: dict[str, Any], where: str) -> TableLayout:
    try:
        return TableLayout.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {': '.join(first_fault(error))}") from None


def _values(path: Path) -> dict[str, Any]:
    """Return a layout's values over those of the shipped layout that it extends."""
    values = read_toml(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if base not in shipped_layouts():
        raise ConfigError(f"{path}: extends: no table '{base}'{nearest(str(base), shipped_layouts())}")
    return {**_values(shipped_layouts()[base]), **values}
