"""Describe published tables: Arrow schema, key, and the things that may not cross splits."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import pyarrow as pa
from pydantic import AfterValidator
from typing_extensions import TypeVar

SPLITS: tuple[str, ...] = ("train", "validation", "test", "ood")
UNSPLIT = "full"  # the one split of a table without splits; `datasets` keeps the word "all" for itself
SPLIT_ALIASES = {
    **dict.fromkeys(("dev", "val", "valid", "development"), "validation"),
    **dict.fromkeys(("eval", "evaluation", "testing"), "test"),
    "training": "train",
}
_VERSION = re.compile(r"[ _-]v\d+$")
Split = Literal["train", "validation", "test", "ood"]
R = TypeVar("R", default=Any)  # a row
Role = Literal["from", "is", "keeps", "part", "mentions"]


def common_split(word: str) -> str:
    """Return the common name of a publisher's split, such as `test` for `eval_v1`; else the word in small letters."""
    text = _VERSION.sub("", word.strip().lower())
    return SPLIT_ALIASES.get(text, text)


def _add_up(shares: dict[Split, float]) -> dict[Split, float]:
    if any(share < 0 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"expected shares that add up to 1, found {shares}")
    return shares


Shares = Annotated[dict[Split, float], AfterValidator(_add_up)]


def split_ends(shares: Mapping[Split, float]) -> dict[str, float]:
    """Return the end of each split from 0 to 1; the last one with a share takes the rest."""
    ends, total = {}, 0.0
    for split in SPLITS[:3]:
        total += shares.get(split, 0.0)  # type: ignore[call-overload]
        ends[f"{split}_upto"] = 2.0 if total > 1 - 1e-9 else total
    return ends


class Ref(NamedTuple):
    """A column's declaration: each value is the id of a thing of that kind."""

    column: str
    kind: str
    role: Role


def column(
    name: str,
    type_: pa.DataType,
    description: str,
    *,
    unit: str | None = None,
    source: str | None = None,
    optional: bool = False,
    feature: str | None = None,
    names: str | tuple[str, ...] = (),
    role: Role = "from",
) -> pa.Field:
    """One field of a published table; what a reader must know travels inside the Parquet file as field metadata.

    The Arrow field itself is always nullable, since `datasets` recognises its features only then;
    that a value is required is held at commit through the `required` entry.

    Args:
        name: the column's name, with its unit where it has one (`duration_s`).
        unit: the unit or range of the values.
        source: where the value comes from (a paper's section, an input column, a measurement).
        optional: whether nulls are allowed.
        feature: what `datasets` is to read it as, where the Arrow type does not say so.
        names: the kinds of things whose ids it holds. `clip` is a file's SHA-256; `annotator`, `prompt` and `source`
            (as `licences` in the config names it) are known everywhere; others name rows, such as `track`.
        role: what the thing is to the row. Withdrawals and licences follow these declarations and nothing else:
            `from`: the row was made from it, and leaves with it;
            `is`: the row is the thing or a part of it, which is gone when no such row of the table stays;
            `keeps`: the thing is there for such rows alone, and is gone when none stays in any table that has one;
            `part`: the row went into the thing, which leaves with any such row;
            `mentions`: the row stays without the value. In all but this one the row leaves with the thing.
    """
    metadata = {"description": description, "required": "false" if optional else "true"}
    if unit:
        metadata["unit"] = unit
    if source:
        metadata["source"] = source
    if feature:
        metadata["feature"] = feature
    if names:
        metadata |= {"names": names if isinstance(names, str) else " ".join(names), "role": role}
    return pa.field(name, type_, nullable=True, metadata=metadata)


@dataclass(frozen=True)
class Column:
    """Facts about a column, in the annotation of a row's key: `Annotated[float | None, Column("Peak.", unit="dB")]`.

    A description alone needs no `Column`. Fields as the arguments of `column`.
    """

    description: str
    unit: str | None = None
    source: str | None = None
    feature: str | None = None
    names: str | tuple[str, ...] = ()
    role: Role = "from"


def columns(row: type) -> pa.Schema:
    """Return the Arrow schema of a row type, a `TypedDict` of annotated keys; `| None` makes a column optional."""
    return pa.schema([_field(name, *get_args(hint)) for name, hint in get_type_hints(row, include_extras=True).items()])


def _field(name: str, kind: Any, facts: str | Column) -> pa.Field:
    about = {"description": facts} if isinstance(facts, str) else vars(facts)
    return column(name, _arrow(kind), optional=NoneType in get_args(kind), **about)


def _arrow(kind: Any) -> pa.DataType:
    if is_typeddict(kind):
        return pa.struct([(name, _arrow(hint)) for name, hint in get_type_hints(kind).items()])
    if get_origin(kind) is list:
        return pa.list_(pa.field("element", _arrow(get_args(kind)[0])))  # as Parquet names a list's items
    if NoneType in get_args(kind):
        return _arrow(get_args(kind)[0])
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}[kind]


class Thing(TypedDict):
    """A thing of any kind from which a row was made."""

    kind: str
    id: str


class WholeFile(TypedDict):
    """A whole audio or image file, as `datasets` stores it.

    `datasets` reads a column of them as `Audio`, handed out as it is, bytes and path: only torchcodec, which no default
    install has, would decode it; with `feature="Image"` as `Image`. Parquet row groups and files of its table are cut
    by bytes too.
    """

    bytes: bytes
    path: str  # `<SHA-256>.<extension>`


WORDS, THINGS, AUDIO = map(_arrow, (list[str], list[Thing], WholeFile))


@dataclass(frozen=True)
class Table(Generic[R]):
    """A published table: `Table("ratings", row=Rating, key=("rating_id",))`."""

    name: str  # folder of the table in a version, and its config name for `load_dataset`
    description: str = ""  # one or two sentences for the card; default the row's docstring
    schema: pa.Schema = None  # Arrow schema; default the row's `columns`
    key: tuple[str, ...] = ()  # columns that together name a row; unique within a version
    # whether rows are divided by a `split` column. A table without splits has the one named `UNSPLIT`.
    splits: bool = True
    # whether a version without rows for it leaves it out; `datasets` loads no table that has none
    optional: bool = False
    exclusive: tuple[str, ...] = ()  # columns whose values may not occur in two splits
    # whether its rows are counted from those of other tables. Where some of those are withdrawn, the corpus's `recount`
    # writes it anew.
    counted: bool = False
    # columns that name an audio file within the version; they are published like the columns of audio
    files: tuple[str, ...] = ()
    # sentences with `{column}` in them, by which `earmark inspect explain` tells what was decided for a row
    says: tuple[str, ...] = ()
    rows_per_group: int = 500_000  # rows in one Parquet row group (aim at 100 to 300 MB in memory)
    rows_per_file: int = 5_000_000  # rows in one Parquet file (aim at no more than 500 MB on disk)
    row: type[R] | None = None  # `TypedDict` of a row

    def __post_init__(self) -> None:
        """Derive description and schema from the row, and tell `datasets` which columns are audio or images: a struct
        of bytes and path alone does not say so."""
        if self.row is not None and self.schema is None:
            object.__setattr__(self, "schema", columns(self.row))
        if self.row is not None and not self.description:
            object.__setattr__(self, "description", " ".join(_docstring(self.row).split()))
        if self.embedded:
            features = {field.name: _FILES.get(embeds(field)) or _feature(field.type) for field in self.schema}
            metadata = {"huggingface": json.dumps({"info": {"features": features}})}
            object.__setattr__(self, "schema", self.schema.with_metadata(metadata))

    @property
    def embedded(self) -> tuple[str, ...]:
        """Names of the columns that hold audio or image files."""
        return tuple(field.name for field in self.schema if embeds(field))

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Return its columns' declarations (`column`); a column of `THINGS` names their kinds in its values."""
        return tuple(
            Ref(field.name, kind, field.metadata[b"role"].decode())
            for field in self.schema
            for kind in field.metadata.get(b"names", b"").decode().split()
        )

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that may not be null."""
        return tuple(field.name for field in self.schema if field.metadata[b"required"] == b"true")


def _docstring(row: type) -> str:
    """Return a row type's docstring; `python -OO` keeps none, but the source does."""
    if row.__doc__ or __debug__:
        return row.__doc__ or ""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(row))).body
    except OSError:  # made by a call: there is no class statement
        return ""
    assert isinstance(node, ast.ClassDef)
    return ast.get_docstring(node) or ""


def embeds(field: pa.Field) -> str | None:
    """`Audio` or `Image` for a column of whole files; None for any other."""
    if field.type != AUDIO:
        return None
    return str((field.metadata or {}).get(b"feature", b"Audio"), "utf-8")


# columns of whole files as `datasets` writes them into a Parquet file's metadata; images it decodes by Pillow
_FILES: dict[str | None, Any] = {"Audio": {"decode": False, "_type": "Audio"}, "Image": {"_type": "Image"}}


def _feature(type_: pa.DataType) -> Any:
    """Return a type as `datasets` writes it into a Parquet file's metadata."""
    if pa.types.is_struct(type_):
        return {field.name: _feature(field.type) for field in type_}
    if pa.types.is_list(type_):
        return {"feature": _feature(type_.value_type), "_type": "List"}
    return {"dtype": {"double": "float64", "float": "float32"}.get(str(type_), str(type_)), "_type": "Value"}


class RejectRow(TypedDict):
    """Every input row or item that did not become part of the dataset, and why."""

    table: Annotated[str, "The table that the item would have entered."]
    item: Annotated[str, "The item's id, or the beginning of the line where no id could be read."]
    stage: Annotated[str, "The step that dropped it."]
    reason: Annotated[str, "A fixed word for the reason; the card counts rejects by it."]
    detail: Annotated[str, "What was expected and what was found."]
    file: Annotated[str | None, "Input file: source name and path below that source's root."]
    line: Annotated[int | None, Column("Line in that file, counted from 1.", unit="line")]
    made_from: Annotated[
        list[Thing] | None,
        "What it is about: source, item, and whatever else its detail names; null where an earlier release wrote it.",
    ]


REJECTS = Table(
    "rejects", row=RejectRow, key=(), splits=False, says=("dropped from {table} at step {stage}: {reason}", "{detail}")
)
