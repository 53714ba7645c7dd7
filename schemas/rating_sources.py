"""Sources of rated clips: which lists are read, what their columns hold, and on which scale they rate."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from earmark.schemas.registry import OneOf
from earmark.schemas.tables import SPLIT_ALIASES, SPLITS, Shares, Split
from earmark.schemas.toml import Model, Name

_DIGIT, _WORD, _SPACE = r"\p{Nd}", r"\p{L}\p{N}_", r"\s\x0b\x1c-\x1f\x{85}\p{Z}"  # as Python's \d, \w and \s
_ESCAPES = {
    "d": _DIGIT, "D": r"\P{Nd}", "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]",
    "Z": r"\z",
}  # fmt: skip
_IN_CLASS = {"d": _DIGIT, "D": r"\P{Nd}", "w": _WORD, "s": _SPACE}
_UP_TO = re.compile(r"\{,(\d*)\}")


@lru_cache(16)
def for_re2(pattern: str) -> str:
    """Return a pattern of Python's as RE2 reads it.

    Python's own engine may take years for `(a+)+$`. RE2, which Arrow has, takes each character once a state. A pattern
    is written as Python reads it, and put into RE2's words here; what RE2 cannot do (look-around, references back) or
    reads in another way is refused.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        re.compile(pattern)
        translated = _translated(pattern)
        pc.extract_regex(pa.nulls(1, pa.string()), translated)  # an array of values would import pandas
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    except pa.ArrowInvalid as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(
            f"expected a pattern that RE2 can search, without look-around and references: {said}"
        ) from None
    return translated


@lru_cache(100_000)
def groups_in(pattern: str, text: str) -> dict[str, str] | None:
    """Return the named groups of a pattern's first match in a text, empty where they took no part; None without one.

    Raises:
        ValueError: as by `for_re2`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, str] | None = pc.extract_regex(pa.array([text], pa.string()), for_re2(pattern))[0].as_py()
    return found


def _translated(pattern: str) -> str:
    parts: list[str] = []
    at, opened = 0, -1  # where the class that is being read began to hold characters
    while at < len(pattern):
        sign, after = pattern[at], pattern[at + 1 : at + 2]
        if sign == "\\":
            table = _ESCAPES if opened < 0 else _IN_CLASS
            if after not in table and after in ("b", "B", "W", "S"):
                where = " in [ ]" if opened >= 0 else ""
                raise ValueError(f"expected a pattern without \\{after}{where}, which RE2 reads in another way")
            parts.append(table.get(after, sign + after))
            at += 2
            continue
        if opened >= 0:
            if sign == "]" and at > opened:
                opened = -1
            parts.append("\\[" if sign == "[" else sign)
        elif sign == "[":
            opened = at + 2 if after == "^" else at + 1
            parts.append(pattern[at:opened])
            at = opened
            continue
        elif up_to := _UP_TO.match(pattern, at):
            parts.append(f"{{0,{up_to[1]}}}")
            at = up_to.end()
            continue
        else:
            parts.append("(?:" if sign == "(" and after != "?" else sign)
        at += 1
    return "".join(parts)


def canonical_splits(value: Any) -> Any:
    """Accept the publishers' names for splits (dev, val, …)."""
    if isinstance(value, dict):
        names: dict[Any, list[str]] = {}
        for key in map(str, value):
            names.setdefault(SPLIT_ALIASES.get(key, key), []).append(key)
        for split, written in names.items():
            if len(written) > 1:
                raise ValueError(f"expected one entry a split, found {', '.join(written)} for {split}")
        return {SPLIT_ALIASES.get(str(key), key): held for key, held in value.items()}
    return value


Scale = tuple[float, float]
Cell = str | float | bool  # what stands in a list, as a config may write it
NOT_A_RATING: tuple[Cell, ...] = Field(
    default=(), description='Cells that stand for "not rated", such as [-1, 99, "n/a", ""]; their rows are left out.'
)


class Columns(Model):
    """Columns of a `table` source by meaning. A column named here must exist, and its cells must be filled."""

    file: str | tuple[str, ...] = Field(
        description="Path or name of the audio file; identifies the clip. A pattern of columns in braces, such as "
        "'{speaker}/{system}/{utt}.wav', in which {column} is the name of the column of the rating; or a column for "
        "each column of ratings."
    )
    mos: str | tuple[str, ...] = Field(
        description="The mean, or one rating; the rows of one file are averaged. A cell may hold several, such as "
        "[4, 5, 3]. Of a wide table, all columns that hold ratings."
    )
    system: str | None = Field(default=None, description="The system that produced the clip.")
    speaker: str | None = Field(default=None, description="The speaker or voice.")
    content: str | None = Field(default=None, description="What is said or sung: text id, reference clip.")
    condition: str | None = Field(default=None, description="Degradation: noise, codec, signal-to-noise ratio.")
    listener: str | None = Field(default=None, description="Who rated; each counts once in the mean of a file.")
    votes: str | None = Field(default=None, description="How many ratings the mean stands on.")
    mos_std: str | None = Field(default=None, description="Sample standard deviation of those ratings.")
    subset: str | None = Field(default=None, description="Listening test; clips are paired only within one.")
    split: str | None = Field(default=None, description="The publisher's split (train, validation, test, ood).")

    def named(self) -> dict[str, str]:
        """Names of the table's columns, each with what it holds."""
        named = {}
        for field, written in self.model_dump(exclude_none=True).items():
            for one in (written,) if isinstance(written, str) else written:
                for column in fields_in(one) if field == "file" and fields_in(one) else (one,):
                    named[column] = field
        named.pop(COLUMN, None)
        return named


COLUMN = "column"  # in a pattern of a file: the name of the rating's column


def fields_in(pattern: str) -> list[str]:
    """Return the columns that a pattern of a file names in braces."""
    return re.findall(r"\{([^{}]+)\}", pattern)


IN_FILE_NAMES = ("system", "speaker", "content", "condition", "subset", "file")


APART = {"by-content": "content_id", "by-system": "system_id", "by-speaker": "speaker_id"}
"""The rules of `split` that share out rows, each with the column of `ratings` of which no value is in two splits."""
OF_TABLES = ("header", "delimiter", "quotes", "encoding", "file_name", "unpivot", "where")
NEWER = (*OF_TABLES, "best", "not_a_rating")


def require_encoding(name: str) -> str:
    """Return the name of a text encoding that Python knows.

    Raises:
        ValueError: it knows none of that name.
    """
    try:
        "x".encode(name)
    except (LookupError, UnicodeError):  # Python calls compression and `rot13` encodings, too
        raise ValueError(f"expected an encoding such as latin-1, cp1252 or utf-16, found '{name[:40]}'") from None
    return name


class Source(Model):
    """One rated corpus on disk, in the layout that its owner publishes."""

    name: Name = Field(description="Name of the dataset in the tables.")
    format: Annotated[str, OneOf("earmark.tasks.importers.lists:RATING_LAYOUTS")] = Field(
        description="The layout it is in: a publisher's, or any table with one rating or rated clip a row."
    )
    root: str | None = Field(default=None, description="Folder of the published layout.")
    files: dict[Split, str | tuple[str, ...]] = Field(
        default={},
        description="`table` only: a file (CSV, TSV, JSON, JSON lines, Parquet) a split, a list of files, or a pattern "
        "such as `part*.csv`.",
    )
    columns: Columns | None = Field(default=None, description="`table` only: which column holds what.")
    header: tuple[str, ...] = Field(
        default=(), description="`table` only: the columns' names, in their order, of a list without a header."
    )
    delimiter: Annotated[str, Field(max_length=1)] = Field(
        default="", description="`table` only: what stands between cells of a text list; a comma, in `.tsv` a tab."
    )
    quotes: bool | None = Field(
        default=None,
        description="`table` only: whether a cell in quotes may hold delimiters and line ends. Without it: yes; "
        "between tabs, any other quote is text.",
    )
    encoding: str = Field(
        default="",
        description="`table` only: how a text list is written, such as `latin-1`, `cp1252` or `gb18030`. Without it: "
        "UTF-8, and UTF-16 where its byte order mark stands first.",
    )
    file_name: str | None = Field(
        default=None,
        description="`table` only: a regular expression whose groups (?P<system>…), speaker, content, condition or "
        "subset are found in each clip's file name; one with a / sees the whole path. (?P<file>…) is the name itself. "
        "Without look-around, references and \\b, so that none can run on.",
    )
    unpivot: Literal["system", "speaker", "content", "condition", "listener", "subset"] | None = Field(
        default=None, description="`table` only: what the names of a wide table's columns of ratings are."
    )
    where: dict[str, Cell | tuple[Cell, ...]] = Field(
        default={},
        description="`table` only: the rows that are read, by what a column of theirs holds: "
        '{ question = "naturalness" }; a list allows several. A cell may hold a word '
        "for each of several ratings.",
    )
    scale: Scale | dict[str, Scale] = Field(
        default=(1.0, 5.0),
        description="Lowest and highest possible rating; or one for each listening test (`subset`): { p = [1, 5], q = "
        "[0, 100] }.",
    )
    best: Literal["high", "low"] = Field(
        default="high",
        description="Which end of the scale is good. With low (ranks, school grades, annoyance of which 1 is none) "
        "ratings are turned: the lowest stands as the highest in all tables.",
    )
    not_a_rating: tuple[Cell, ...] = NOT_A_RATING
    split: str = Field(
        default="native",
        description="`native`, one split for all rows, or by the hash of what no two splits share: `by-content`, "
        "`by-system`, `by-speaker`.",
    )
    shares: Shares = Field(
        default={"train": 0.8, "validation": 0.1, "test": 0.1},
        description="Shares of contents with `by-content`, of systems or speakers with the others.",
    )
    repeat_votes: Literal["mean", "all", "first", "last", "reject"] = Field(
        default="mean",
        description="Which ratings count of a listener who rated a clip more than once: their mean, all, the "
        "first, the last, or none (`reject`).",
    )
    audio_root: str | None = Field(default=None, description="Folder that the list's file names start from.")

    _splits = field_validator("files", "shares", mode="before")(canonical_splits)

    def splits(self) -> Iterable[str]:
        """Return the splits that rows of the source may be in, as far as the config tells."""
        if self.split in APART:
            return [split for split, share in self.shares.items() if share]
        if self.split != "native":
            return [self.split]
        return [*self.files] if self.columns is not None and self.columns.split is None else SPLITS

    @field_validator("split")
    @classmethod
    def _known_split(cls, value: str) -> str:
        value = SPLIT_ALIASES.get(value, value)
        known = ("native", *APART, *SPLITS)
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        return require_encoding(value) if value else value

    @field_validator("file_name")
    @classmethod
    def _groups_are_known(cls, value: str | None) -> str | None:
        for_re2(value or "(?P<system>)")
        groups = {*re.compile(value or "(?P<system>)").groupindex}
        if not groups or groups - {*IN_FILE_NAMES}:
            raise ValueError(f"expected groups (?P<NAME>…) of {', '.join(IN_FILE_NAMES)}, found {sorted(groups)}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.format == "table":
            if not self.files or self.columns is None:
                raise ValueError(f"source '{self.name}': format 'table' needs 'files' and 'columns'")
        elif self.root is None:
            raise ValueError(f"source '{self.name}': format '{self.format}' needs 'root', the published folder")
        elif self.files or self.columns:
            raise ValueError(f"source '{self.name}': 'files' and 'columns' belong to format 'table' only")
        elif of_tables := next((name for name in OF_TABLES if getattr(self, name) not in (None, "", (), {})), None):
            raise ValueError(f"source '{self.name}': '{of_tables}' belongs to format 'table' only")
        if self.columns and self.header and (gone := sorted({*self.columns.named()} - {*self.header})):
            raise ValueError(f"source '{self.name}': columns names '{gone[0]}', which header does not")
        if self.columns and self.file_name:
            twice = {*re.compile(self.file_name).groupindex} & {*self.columns.model_dump(exclude_none=True)} - {"file"}
            if twice:
                raise ValueError(f"source '{self.name}': both columns and file_name give the {sorted(twice)[0]}")
        if self.root is not None and any(_climbs(file) for _, file in self.lists()):
            raise ValueError(f"source '{self.name}': expected 'files' inside 'root', found a path that leaves it")
        for low, high in self.scales().values():
            if not low < high:
                raise ValueError(f"source '{self.name}': expected scale = [lowest, highest], found {[low, high]}")
        if self.columns:
            self._wide(self.columns)
            self._names_what_is_kept_apart(self.columns)
        return self

    def _names_what_is_kept_apart(self, columns: Columns) -> None:
        """Refuse to keep systems or speakers apart that nothing names."""
        word = self.split.removeprefix("by-")
        groups = re.compile(self.file_name or "").groupindex
        if word in ("system", "speaker") and not (getattr(columns, word) or word in groups or self.unpivot == word):
            raise ValueError(
                f"source '{self.name}': split = 'by-{word}' needs columns.{word}, or a {word} in file_name"
            )

    def _wide(self, columns: Columns) -> None:
        """Refuse several columns of ratings that nothing tells apart."""
        several = not isinstance(columns.mos, str)
        if not isinstance(columns.file, str) and (not several or len(columns.file) != len(columns.mos)):
            raise ValueError(f"source '{self.name}': columns.file: expected as many columns as columns.mos has")
        if self.unpivot and (not several or getattr(columns, self.unpivot)):
            raise ValueError(
                f"source '{self.name}': unpivot = '{self.unpivot}' needs a list of columns in columns.mos, and no "
                f"column of {self.unpivot}"
            )
        if several and not self.unpivot and isinstance(columns.file, str) and COLUMN not in fields_in(columns.file):
            raise ValueError(
                f"source '{self.name}': columns.mos names several columns; expected unpivot = 'system' (or 'listener', "
                "…: what their names are), {column} in columns.file, or a list of columns there"
            )

    def lists(self) -> list[tuple[Split, str]]:
        """Return the files and patterns of files, each with its split."""
        return [
            (split, one)
            for split, written in self.files.items()
            for one in ((written,) if isinstance(written, str) else written)
        ]

    def scales(self) -> dict[str | None, Scale]:
        """Return the scale by listening test; by None, where all have one."""
        return dict[str | None, Scale](self.scale.items()) if isinstance(self.scale, dict) else {None: self.scale}


def _climbs(path: str) -> bool:
    pure = PurePosixPath(path.replace("\\", "/"))
    return pure.is_absolute() or ".." in pure.parts
