"""Read TOML into strict models: unknown keys are refused with the nearest known key."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from earmark.schemas.dropped import dropped_of
from earmark.schemas.errors import ConfigError
from earmark.schemas.files import NotAFile, read_regular
from earmark.schemas.places import without_secrets

NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
Name = Annotated[str, Field(pattern=NAME, description="Lower-case letters, digits, . _ -")]

LARGEST = 2**63 - 1  # largest value of an integer column


def moved(line: str) -> PydanticCustomError:
    """Return the error for a key of an earlier release; the line tells its present spelling."""
    return PydanticCustomError("moved", "{line}", {"line": line})


def _take_no_other_type(schema: Any) -> None:
    """Make numbers and booleans strict: `true` is no number, `"17"` neither; lists become tuples as before."""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for name, part in schema.items():
            if name not in ("default", "metadata", "serialization"):
                _take_no_other_type(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _take_no_other_type(part)


class Flat(NamedTuple):
    """Table of before that is one value now.

    Attributes:
        key: the value's key.
        take: the value that a table stands for; None for the default.
        give: the table that a recorded config holds for a value.
    """

    key: str
    take: Callable[[dict[str, Any]], Any]
    give: Callable[[Any], dict[str, Any] | None]


class Model(BaseModel):
    """Part of a config: immutable, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    # Keys of earlier releases with their present names. A config file with an old key is refused with the new key; the
    # config in an earlier version's manifest is read as if it had the new key. `dropped.py` has those without one.
    renamed: ClassVar[Mapping[str, str]] = {}
    were_tables: ClassVar[Mapping[str, Flat]] = {}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _take_no_other_type(schema)
        return schema

    @classmethod
    def spelling(cls) -> dict[str, str]:
        """Return the keys that a config file may have, by their fields."""
        return {name: field.alias or name for name, field in cls.model_fields.items() if name != "base"}

    @model_validator(mode="before")
    @classmethod
    def _keys_of_now(cls, values: Any, info: ValidationInfo) -> Any:
        names = {old: new for base in cls.__mro__ for old, new in vars(base).get("renamed", {}).items()}
        dropped, recorded = dropped_of(cls), bool(info.context and info.context.get("recorded"))
        if recorded and isinstance(values, dict):
            values = cls.respelled(values)
        if isinstance(values, dict) and not recorded:
            for key, table in cls.flattened(values):
                value, lost = cls.were_tables[key].take(table), cls.not_held(key, table)
                written = json.dumps(value, ensure_ascii=False)
                new = "leave it out" if value is None else f"write {cls.were_tables[key].key} = {written}"
                left = f"; {', '.join(lost)} has no place in it" if lost else ""
                raise moved(f"table '{key}' is one value now: {new}{left}")
        if not isinstance(values, dict) or (names.keys() | dropped.keys()).isdisjoint(values):
            return values
        if recorded:
            return {names.get(key, key): value for key, value in values.items() if key not in dropped}
        if gone := min(dropped.keys() & values.keys(), default=None):
            raise moved(f"key '{gone}' is no option any more: {dropped[gone].instead}")
        old = min(names.keys() & values.keys())
        raise moved(f"key '{old}' is now called '{names[old]}'")

    @model_serializer(mode="wrap")
    def _recorded_with_dropped(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)  # of a copy with a value of another type, that value
        if isinstance(values, dict) and info.context and info.context.get("recorded"):
            values = self._as_recorded(values | {name: one.value for name, one in dropped_of(type(self)).items()})
            values |= {key: one.give(values.pop(one.key)) for key, one in self.were_tables.items() if one.key in values}
        return values

    @classmethod
    def flattened(cls, values: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Return the tables of before that are one value now, by their keys."""
        return [(key, values[key]) for key in cls.were_tables if isinstance(values.get(key), dict)]

    @classmethod
    def not_held(cls, key: str, table: Mapping[str, Any]) -> list[str]:
        """Return the keys of a table of before whose values its one value does not stand for."""
        one = cls.were_tables[key]
        usual = cls.model_fields[one.key].get_default(call_default_factory=True)
        now = one.give(usual if (value := one.take(dict(table))) is None else value) or {}
        return [name for name in table if name not in now or now[name] != table[name]]

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return values of 1.0.0 with keys that moved in their present places."""
        for key, table in cls.flattened(values):
            one, values = cls.were_tables[key], {name: value for name, value in values.items() if name != key}
            values |= {} if (value := one.take(table)) is None else {one.key: value}
        return values

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return values to record with keys that moved in their former places."""
        return values

    @field_validator("*")
    @classmethod
    def _fits_a_column(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"expected a whole number of at most {LARGEST}")
        return value


def changed(values: V, path: str, change: Callable[[Any], Any] | None) -> V:
    """Return recorded values with a part changed, or without it: `links`, `pairs.near`; of a list, in each member."""
    name, _, rest = path.partition(".")
    made: Any = values
    if isinstance(values, list | tuple):
        made = [changed(one, path, change) for one in values]
    elif isinstance(values, dict) and rest:
        made = {**values, name: changed(values[name], rest, change)}
    elif isinstance(values, dict):
        made = {**values, name: change(values[name])} if change else {**values}
        if change is None:
            del made[name]
    return cast(V, made)


def without(values: dict[str, Any], *paths: str) -> dict[str, Any]:
    """Return recorded values without these parts."""
    for path in paths:
        values = changed(values, path, None)
    return values


def filled(values: dict[str, Any], names: Collection[str], usual: object = None) -> dict[str, Any]:
    """Return recorded values without those of these keys that are empty or as usual."""
    empty: tuple[object, ...] = (None, "", (), [], {}, usual)
    return {name: value for name, value in values.items() if name not in names or value not in empty}


def only(*names: str) -> Callable[[Any], Any]:
    """Return a change of a recorded table, if there is one, to these keys alone."""
    return lambda table: table and {name: table[name] for name in names}


Config = TypeVar("Config", bound=Model)
Checked = TypeVar("Checked", bound=BaseModel)
V = TypeVar("V")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing, a folder or a pipe, not UTF-8 or not TOML.
    """
    hint = "" if path.suffix == ".toml" else "; a config is a TOML file, such as `earmark init` writes"
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"config not found: {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: expected a TOML file, found a folder") from None
    except NotAFile as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x}{hint}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}{hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # an invalid path
        raise ConfigError(f"{str(path)!r}: cannot be read: {error}") from None


OF_RUNS = {"limit": "give a run --limit N, in Python limit=N"}
"""Keys of 1.0.0 that are a run's own now."""


def parse_config(model: type[Config], values: dict[str, Any], where: Path, limit: int | None = None) -> Config:
    """Check the values of a config file (`where`) against its model; relative paths start from this file's folder.

    A run may be limited to the first rows of each source.

    Raises:
        ConfigError: one line with the first faulty key, expected and found.
    """
    if "base" in values:
        raise ConfigError(f"{where}: unknown key 'base'{nearest('base', _spelling_at(model, ()).values())}")
    if "limit" in values and "limit" in model.model_fields:
        raise ConfigError(
            f"{where}: key 'limit' is no option any more: {OF_RUNS['limit']}; new spelling of a file: earmark doctor "
            "--config FILE"
        )
    run = {} if limit is None else {"limit": limit}
    return checked(model, {**values, **run, "base": where.parent.absolute()}, where)


def checked(model: type[Checked], values: dict[str, Any], where: Path, *, flat_roles: bool = False) -> Checked:
    """Check values against a model other than a build's; only with `flat_roles` may roles hold options of models."""
    try:
        return model.model_validate(values, context={"file": where, "flat_roles": flat_roles})
    except ValidationError as error:
        raise ConfigError(f"{where}: {_one_line(model, error)}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `; did you mean 'seed'?`, or the known words if none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Return the place and the message of a record's first fault."""
    first: ErrorDetails = error.errors()[0]
    return ".".join(map(str, first["loc"])) or "content", first["msg"]


def _one_line(model: type[BaseModel], error: ValidationError) -> str:
    errors: list[ErrorDetails] = error.errors()
    ranks = {"moved": 0, "extra_forbidden": 1}  # a misspelt key explains a missing key
    first: ErrorDetails = min(errors, key=lambda e: ranks.get(e["type"], 2))
    *place, last = [part for part in first["loc"] if part != "[key]"] or ("",)  # pydantic's mark of a table's name
    known = _spelling_at(model, tuple(place))
    key = _dotted((*place, known.get(str(last), last)))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'{nearest(str(last), known.values())}{more}"
    if first["type"] == "missing":
        return f"missing key '{key}'{more}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "string_pattern_mismatch" and first["ctx"]["pattern"] == NAME:
        message = "expected a name of at most 64 lower-case letters, digits, . _ -"
    if first["type"] == "moved":
        return f"{f'{key}: ' if key else ''}{message}; new spelling of a file: earmark doctor --config FILE{more}"
    if not key:
        return f"{message}{more}"
    said = f"{key}: {message[0].lower()}{message[1:]}"
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return f"{said}{more}"  # a rule over a whole table names the found value itself
    found = without_secrets(repr(first["input"]))
    found = re.sub(r"(://[^\s?'\"]*)\?[^\s'\"]*", r"\1?…", found)  # a query may hold a key
    return f"{said}, found {found if len(found) <= 80 else found[:77] + '...'}{more}"


def _dotted(loc: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    return text if text.isprintable() else ascii(text)[1:-1]


def _spelling_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> dict[str, str]:
    """Return the keys allowed in a place, by their fields."""
    here: Any = model
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = here.model_fields[str(part)].annotation
        here = inner_model(here)
    return here.spelling() if isinstance(here, type) and issubclass(here, Model) else {}


def inner_model(annotation: Any) -> Any:
    """Return the model inside `list[Model]`, `dict[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = [inner_model(argument) for argument in getattr(annotation, "__args__", ())]
    return next((m for m in models if isinstance(m, type) and issubclass(m, BaseModel)), annotation)
