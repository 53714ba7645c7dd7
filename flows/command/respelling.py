"""Rewrite configs of 1.0.0: models are declared once, roles name them, and dropped keys leave."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from earmark.schemas.annotation import OF_MODELS, AnnotatorConfig, ModelDeclaration, is_flat
from earmark.schemas.config import Declaring
from earmark.schemas.dropped import dropped_of
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee, Scorer
from earmark.schemas.toml import OF_RUNS, Model, inner_model, read_toml
from earmark.tasks.pipeline.registry import find_corpus

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(#.*)?")
_MISSING = object()
Place = tuple[str | int, ...]


def renewed(path: Path) -> str | None:
    """Return the text of a config, of an evaluated model or of a scorer in the present spelling; None if it has it.

    Raises:
        ConfigError: the file cannot be read, or names an unknown corpus.
    """
    values = read_toml(path)
    model = model_of(path, values)
    return new_text(model, path.read_text("utf-8-sig")) if is_old(model, values) else None


def model_of(path: Path, values: dict[str, Any]) -> type[Model]:
    """Return the model of a file: of a corpus's config, of an evaluated model's settings or of a scorer."""
    if "corpus" in values:
        return find_corpus(str(values["corpus"])).config
    if values.keys() & {"annotator", "model"}:
        return Scorer if "scores" in values else Examinee
    raise ConfigError(f'{path}: expected corpus = "NAME", or the settings of a model to evaluate; found neither')


def is_settings(path: Path) -> bool:
    """Return whether a file describes an evaluated model or a scorer, not a build."""
    return issubclass(model_of(path, read_toml(path)), Examinee | Scorer)


def left_out(model: type[Model], values: dict[str, Any]) -> list[str]:
    """Return a line for each dropped key whose value is not the constant in its place.

    Of a table that is one value now, a line for each value that this one does not stand for.
    """
    tables = list(_renewing(model, deepcopy(values)))
    lost = [line for cls, table in _tables(model, values) for line in _of_flat_tables(cls, table)]
    return (
        lost
        + [f"{key} = {toml(values[key])} is left out: {OF_RUNS[key]}" for key in _of_runs(model, values)]
        + [
            f"{key} = {toml(table[key])} is left out: {one.instead}"
            for cls, table in tables
            for key, one in dropped_of(cls).items()
            if key in table and key != "prices" and not _is_constant(table[key], one.value)  # prices go to the models
        ]
    )


def _of_flat_tables(cls: type[Model], values: dict[str, Any]) -> Iterator[str]:
    for key, table in cls.flattened(values):
        for name in cls.not_held(key, table):
            yield f"{key}.{name} = {toml(table[name])} is left out: {cls.were_tables[key].key} stands for this table"


def _is_constant(value: Any, constant: Any) -> bool:
    """Return whether a key's value, of a table as far as it is written, is the constant in its place."""
    tables = isinstance(value, dict) and isinstance(constant, dict)
    return bool({**constant, **value} == constant if tables else value == constant)


def _of_runs(model: type[Model], values: dict[str, Any]) -> list[str]:
    return [key for key in OF_RUNS if key in values and key in model.model_fields]


def is_old(model: type[Model], values: dict[str, Any]) -> bool:
    """Return whether a role has a key of a model, or a table has a dropped key."""
    return bool(_of_runs(model, values)) or any(
        dropped_of(cls).keys() & table.keys()
        or cls.respelled(table) != table
        or (issubclass(cls, AnnotatorConfig) and is_flat(table))
        for cls, table in _tables(model, values)
    )


def new_values(model: type[Model], values: dict[str, Any]) -> dict[str, Any]:
    """Return a config's values in the present spelling; the values stay as they are."""
    new = {key: deepcopy(one) for key, one in values.items() if key not in _of_runs(model, values)}
    prices = new.pop("prices", None) if "prices" in dropped_of(model) else None
    tables = list(_renewing(model, new))
    for cls, table in tables:
        for key in dropped_of(cls).keys() & table.keys():
            del table[key]
    for one in new.get("models", {}).values():
        for group in [key for key, held in one.items() if held == {}]:
            del one[group]
    judges = new.get("judges") or []
    shared = new.get("judge", {}) if judges else {}
    if judges:  # 1.0.0 took it beside judges of which the first is the same
        shared.pop("annotator", None)
    common = {key: shared.pop(key) for key in OF_MODELS.keys() & shared.keys()}
    common = {"prices": prices, **common} if prices and judges else common
    models: dict[str, dict[str, Any]] = new.get("models", {})
    for role in (table for cls, table in tables if issubclass(cls, AnnotatorConfig) and "annotator" in table):
        flat = common if any(role is one for one in judges) else {}
        if prices and not judges and any(role is new.get(name) for name in ("judge", "synthesis")):
            flat = {"prices": prices}
        flat = flat | {key: role.pop(key) for key in (*OF_MODELS, "annotator") if key in role}
        annotator = str(flat["annotator"])
        role |= {"model": annotator if len(flat) == 1 else _declare(models, annotator, flat)}
    return {**new, "models": models} if models else new


def _declare(models: dict[str, dict[str, Any]], annotator: str, flat: dict[str, Any]) -> str:
    declared: dict[str, Any] = {"annotator": annotator}
    for key in (key for key in OF_MODELS if key in flat):
        group, _, option = OF_MODELS[key].rpartition(".")
        (declared.setdefault(group, {}) if group else declared)[option] = flat[key]
    last = re.split(r"[:/]", annotator)[-1].lower()
    stem = re.sub(r"[^a-z0-9_-]+", "-", last).strip("-_")[:60] or "model"
    for name in (stem, *(f"{stem}-{number}" for number in range(2, len(models) + 3))):
        if models.setdefault(name, declared) == declared:
            return name
    raise AssertionError("more names than models")


def new_text(model: type[Model], text: str) -> str:
    """Return a config file's text in the present spelling, with its comments where the layout allows."""
    values = tomllib.loads(text)
    new = new_values(model, values)
    try:
        edited = _edited(text, values, new)
        kept = tomllib.loads(edited) == new
    except tomllib.TOMLDecodeError:
        kept = False
    return edited if kept else "\n".join(document(new)) + "\n"


def _tables(model: type[Model], table: Any) -> Iterator[tuple[type[Model], dict[str, Any]]]:
    if not isinstance(table, dict):
        return
    yield model, table
    for name, field in model.model_fields.items():
        inner = inner_model(field.annotation)
        if isinstance(inner, type) and issubclass(inner, Model):
            held = table.get(name)
            many = held if isinstance(held, list) else [held]
            if isinstance(held, dict) and "dict[" in str(field.annotation):
                many = list(held.values())
            for one in many:
                yield from _tables(inner, one)
    if issubclass(model, Declaring) and isinstance(table.get("models"), dict):
        for one in table["models"].values():
            yield from _tables(ModelDeclaration, one)


def _renewing(model: type[Model], values: dict[str, Any]) -> Iterator[tuple[type[Model], dict[str, Any]]]:
    """Give each table its present spelling, and yield it; a table before its parts, some of which it moves."""
    for cls, table in _tables(model, values):
        new_table = dict(cls.respelled(table))
        table.clear()
        table.update(new_table)
        yield cls, table


def _edited(text: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    """Change the statements of a config whose values differ, and add the declared models before the first of them."""
    lines, out = text.splitlines(), list[str]()
    place: Place = ()
    counts: dict[Place, int] = {}
    first = head = None
    top, seen = list[str](), set[str]()  # what stands before the first table now: comments first; and before
    while lines:
        statement = lines.pop(0)
        if header := _HEADER.fullmatch(statement):
            place = _resolve(_keys(header[2]), counts, many=header[1] == "[[")
            head = _above(out) if head is None else head
            if not isinstance(_at(new, place), dict):
                top += [header[3]] if header[3] and place[0] not in _table_keys(new) else []
                continue
            if first is None and _at(old, place[:1]) != _at(new, place[:1]):
                first = _above(out)
            out.append(statement)
            out += _moved_in(_at(old, place), _at(new, place))
            continue
        if statement.strip() and not statement.lstrip().startswith("#"):
            while not _parses(statement) and lines:
                statement += "\n" + lines.pop(0)
            edited = _statement(statement, place, old, new)
            if edited is None:
                gone = len(place) == 1 and not isinstance(_at(new, place), dict)
                top += [_comment(statement).lstrip()] if gone and _comment(statement) else []
                continue
            statement = edited
            seen.update(() if place else _keys(statement.partition("=")[0])[:1])
        out.append(statement)
    block = list[str]()
    for name in [name for name in new.get("models", {}) if name not in old.get("models", {})]:
        block += [f"[models.{name}]", *_dotted(new["models"][name]), ""]
    first = len(out) if first is None else first
    out[first:first] = [*([""] if block and first and out[first - 1] else []), *block]
    plain = {key: one for key, one in new.items() if key not in seen and key not in _table_keys(new)}
    top += [f"{toml_key(key)} = {toml(one)}" for key, one in plain.items() if one != old.get(key)]
    head = len(out) if head is None else head
    out[head:head] = [*top, ""] if top and head < len(out) else top
    return "\n".join(out).rstrip("\n") + "\n"


def _above(out: list[str]) -> int:
    """Return the place of what comes next, above its comments."""
    place = len(out)
    while place and out[place - 1].startswith("#"):
        place -= 1
    return place


def _moved_in(old: Any, new: Any) -> list[str]:
    """Return the statements of keys that a table of before lacks; `model` takes the line of `annotator`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    return [f"{toml_key(key)} = {toml(new[key])}" for key in new if key not in old and key != "model"]


def _statement(statement: str, place: Place, old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return a statement in the present spelling, None without its key."""
    key = statement.partition("=")[0]
    full = (*place, *_keys(key))
    value = _at(new, full)
    if value == _at(old, full):
        return statement
    if value is _MISSING and full[-1] == "annotator":
        key, value = key.replace("annotator", "model"), _at(new, (*full[:-1], "model"))
    if value is _MISSING:
        return None
    return f"{key.rstrip()} = {toml(value)}{_comment(statement)}"


def _comment(statement: str) -> str:
    """Return the comment that ends a statement, with the blanks before it; empty without one."""
    rest = statement.partition("=")[2]
    return next((one[0] for one in re.finditer(r" *#[^\n]*$", rest) if _parses(f"x = {rest[: one.start()]}")), "")


def _resolve(keys: list[str], counts: dict[Place, int], *, many: bool) -> Place:
    """Return a header's place, with the numbers of the arrays on its way."""
    place: Place = ()
    for number, key in enumerate(keys, 1):
        place = (*place, key)
        if many and number == len(keys):
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = (*place, counts[place])
    return place


def _at(values: Any, place: Place) -> Any:
    for part in place:
        if isinstance(part, int) and not isinstance(values, list):
            return _MISSING
        if isinstance(part, str) and (not isinstance(values, dict) or part not in values):
            return _MISSING
        values = values[part]
    return values


def _keys(dotted: str) -> list[str]:
    table, keys = tomllib.loads(f"{dotted.strip()} = 0"), list[str]()
    while isinstance(table, dict):
        ((key, table),) = table.items()
        keys.append(key)
    return keys


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _dotted(model: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a declared model, its groups by dotted keys."""
    for key, value in model.items():
        if isinstance(value, dict):
            yield from (f"{key}.{name} = {toml(one)}" for name, one in value.items())
        else:
            yield f"{key} = {toml(value)}"


def document(values: dict[str, Any], *prefix: str) -> list[str]:
    """Return the lines of a table: plain values, then tables, then arrays of tables."""
    tables = _table_keys(values)
    lines = [f"{toml_key(key)} = {toml(one)}" for key, one in values.items() if key not in tables]
    for key in tables:
        name, one_table = ".".join(map(toml_key, (*prefix, key))), isinstance(values[key], dict)
        for one in [values[key]] if one_table else values[key]:
            lines += ["", f"[{name}]" if one_table else f"[[{name}]]", *document(one, *prefix, key)]
    return lines


def _table_keys(values: dict[str, Any]) -> list[str]:
    """Return the keys of tables and of arrays of tables."""
    held = {key: one if isinstance(one, list) else [one] for key, one in values.items()}
    return [key for key, many in held.items() if many and all(isinstance(one, dict) for one in many)]


def toml_key(key: str) -> str:
    """Return a key as TOML."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def toml(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(str(key))} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str) and ("\\" in value or "(?P<" in value) and "'" not in value and value.isprintable():
        return f"'{value}'"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)
