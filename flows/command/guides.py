"""Write the parts of guides and the files that follow from declarations: `python -m earmark.flows.command.guides`.

README and `flows/command/rejects.md` are written by hand except between two comments naming a part. The reference,
`flows/reference/`, the deployments, `deploy/prefect.yaml`, and the demo's rebuild are written whole. A test keeps all
of them current.
"""

import json
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from earmark.schemas.annotation import AnnotatorConfig, Asked, ModelDeclaration
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.reasons import FAULTS, RULES, options_of
from earmark.schemas.registry import OneOf
from earmark.schemas.toml import Model, read_toml
from earmark.tasks.pipeline.registry import corpora, find_corpus

_PART = re.compile(r"(<!-- (corpora|reasons) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_SUFFIXES: dict[Any, str] = {tuple: "[]", list: "[]", dict: ".NAME"}
SHARED = set(BuildConfig.model_fields) - {"corpus"}  # options of every corpus, in `flows/reference/options.md`
ROOT = Path(__file__).resolve().parents[2]
_WORDS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def generated() -> dict[Path, str]:
    """Return the text of every file that holds generated parts, or is generated."""
    own = [find_corpus(name) for name, one in corpora().items() if one.package is None]
    parts = {
        ROOT / "README.md": {"corpora": corpora_table(own)},
        ROOT / "flows/command/rejects.md": {"reasons": reasons_table()},
    }
    models = [options_table(model) for model in (Asked, ModelDeclaration)]
    written = {
        ROOT / "flows/reference/options.md": _WORDS["options"] + options_table(BuildConfig, SHARED),
        ROOT / "flows/reference/models.md": _WORDS["models"].format(*models),
    } | {ROOT / reference(corpus): corpus_reference(corpus) for corpus in own}
    builds = [{"corpus": corpus.name, "config": f"{corpus.name}.toml"} for corpus in own]
    entries = "".join("\n[[builds]]\n" + "".join(f'{key} = "{one[key]}"\n' for key in one) for one in builds)
    return (
        {path: rewritten(path.read_text("utf-8"), texts) for path, texts in parts.items()}
        | written
        | {
            ROOT / "data/demo/rebuild.toml": _WORDS["rebuild"] + entries,
            ROOT / "deploy/prefect.yaml": _WORDS["deployments"] + deployments(own, builds),
        }
    )


def corpora_table(own: list[Corpus]) -> str:
    """Tabulate the corpora in Markdown."""
    lines = ["| corpus | from | what it holds | method of |", "|---|---|---|---|"]
    lines += [f"| [`{one.name}`]({guide(one)}) | {one.source} | {one.holds} | {one.paper} |" for one in own]
    return "\n".join(lines) + "\n"


def deployments(own: list[Corpus], builds: list[dict[str, str]]) -> str:
    """Describe a deployment of each corpus with the demo's config, of the demo's rebuild and of publishing, in YAML."""
    demo = ROOT / "data/demo"
    configs = {one.name: {**read_toml(demo / f"{one.name}.toml")} for one in own}
    flows = [(one.name, "nightly", one.flow, one.schedule, configs[one.name]) for one in own]
    flows.append(("rebuild", "weekly", "earmark.flows.rebuild:rebuild", "0 1 * * 0", {"builds": builds}))
    entries: list[dict[str, Any]] = []
    for tag, name, flow, cron, config in flows:
        config.pop("corpus", None)
        entries.append(
            _deployment(tag, name, flow, "CANCEL_NEW")
            | {"parameters": {"config": {"base": "data/demo", **config}, "store": "data/store"}}
            | {"schedules": [{"cron": cron, "timezone": "UTC", "active": True}]}
        )
    entries.append(_deployment("publish", "by-hand", "earmark.flows.publish:publish", "ENQUEUE"))
    text: str = yaml.safe_dump(
        {"name": "earmark", "deployments": entries},
        sort_keys=False,
        default_flow_style=None,
        width=120,
        allow_unicode=True,
    )
    return text


def _deployment(tag: str, name: str, flow: str, collision: str) -> dict[str, Any]:
    module, _, function = flow.removeprefix("earmark.").partition(":")
    return {
        "name": name,
        "entrypoint": f"{module.replace('.', '/')}.py:{function}",
        "tags": ["earmark", tag],
        "concurrency_limit": {"limit": 1, "collision_strategy": collision},
        "work_pool": {"name": "local"},
    }


def guide(corpus: Corpus) -> str:
    """Return the path of a corpus's guide."""
    return f"flows/{corpus.name.replace('-', '_')}.md"


def reference(corpus: Corpus) -> str:
    """Return the path of a corpus's reference."""
    return guide(corpus).replace("flows/", "flows/reference/")


def rewritten(text: str, parts: dict[str, str]) -> str:
    """Return a guide's text with these parts replaced."""
    return _PART.sub(lambda part: f"{part[1]}\n{parts[part[2]]}\n{part[3]}", text)


def options_table(model: type[Model], names: set[str] | None = None) -> str:
    """Tabulate a config's options in Markdown: key, kind, default, description; all, or those of some fields."""
    lines = ["| key | kind | default | what it is |", "|---|---|---|---|"]
    for key, kind, default, description in _options(model, ""):
        name = re.split(r"[.[]", key)[0]
        if name != "corpus" and (names is None or name in names):
            lines.append(f"| `{key}` | {_cell(kind)} | {_cell(default)} | {_cell(description)} |")
    return "\n".join(lines) + "\n"


def corpus_reference(corpus: Corpus) -> str:
    """Document a corpus's own options, the reasons that its options mend, and its tables."""
    return _WORDS["corpus"].format(
        name=corpus.name,
        guide=Path(guide(corpus)).name,
        options=options_table(corpus.config, set(corpus.config.model_fields) - SHARED),
        reasons=reasons_table(corpus.config),
        views=views_table(corpus),
        tables=tables_text(corpus),
    )


def reasons_table(config: type[BuildConfig] | None = None) -> str:
    """Tabulate the reasons of rejects by kind and by the options affecting them, for a config its own."""
    lines = ["| what it is | options | reasons |", "|---|---|---|"]
    for kind, declared in (("fault", FAULTS), ("rule", RULES)):
        for ends, reasons in declared.items():
            words = reasons.split()
            options = [key for key, _ in options_of(words[0], config)] if config else ends.split()
            if options or not config:
                keys = ", ".join(f"`{option}`" for option in options) or "–"
                lines.append(f"| {kind} | {keys} | {', '.join(f'`{word}`' for word in words)} |")
    return "\n".join(lines) + "\n"


def views_table(corpus: Corpus) -> str:
    """Tabulate the views of a corpus: name, kind of row, further formats, description."""
    lines = ["| view | kind | formats of its own | what it holds |", "|---|---|---|---|"]
    for view in corpus.views:
        own = ", ".join(f"`{writer.format}`" for writer in view.writers)
        lines.append(f"| `{view.name}` | {view.kind} | {own or '–'} | {_cell(view.says)} |")
    return "\n".join(lines) + "\n"


def tables_text(corpus: Corpus) -> str:
    """Describe every table of a version with its columns."""
    parts = []
    for table in corpus.tables:
        parts += [f"**`{table.name}`**. {table.description}\n", "| column | type | what it is |", "|---|---|---|"]
        for field in table.schema:
            notes = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
            unit = f" ({notes['unit']})" if "unit" in notes else ""
            kind = "audio" if "bytes" in str(field.type) else str(field.type)
            parts.append(f"| `{field.name}` | {_cell(kind)} | {_cell(notes.get('description', '') + unit)} |")
        parts.append("")
    return "\n".join(parts)


def _options(
    model: type[Model], prefix: str, told: dict[type[Model], str] | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the options of a model; a part of several options, such as `[[judges]]` beside `[judge]`, once."""
    told = {} if told is None else told
    for name, spelt in model.spelling().items():
        field, key = model.model_fields[name], f"{prefix}{spelt}"
        inner, suffix = _inner(field.annotation)
        yield key, _names(field) or _kind(field.annotation), _default(field), field.description or ""
        if inner is None:
            continue
        if (first := told.setdefault(inner, key)) != key and len(inner.model_fields) > 1:
            yield f"{key}{suffix}.…", "", "", f"The options of `{first}`."
            continue
        options = _options(inner, f"{key}{suffix}.", dict(told))
        if not issubclass(inner, AnnotatorConfig):
            yield from options
            continue
        start = len(key + suffix) + 1
        yield from (
            option for option in options if re.split(r"[.[]", option[0][start:])[0] not in Asked.spelling().values()
        )
        yield f"{key}{suffix}.…", "", "", "The options of a [role](models.md)."


def _inner(annotation: Any) -> tuple[type[Model] | None, str]:
    """Return the model in a field, if any, and the suffix of its key: `[]` for a list, `.NAME` for a table of them."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation, ""
    suffix = _SUFFIXES.get(get_origin(annotation), "")
    for argument in get_args(annotation):
        model, deeper = _inner(argument)
        if model is not None:
            return model, suffix + deeper
    return None, ""


def _names(field: FieldInfo) -> str:
    """Return the names allowed for a field by a registry, without those of installed packages."""
    marks = ((mark.registry.own, ":…" if mark.form else "") for mark in field.metadata if isinstance(mark, OneOf))
    return next((" or ".join(f"`{name}{more}`" for name in own) for own, more in marks), "")


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{'false' if value is False else value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(argument) for argument in arguments if argument is not type(None))
    if origin in (tuple, list):
        inner = [argument for argument in arguments if argument is not Ellipsis]
        return f"list of {_kind(inner[0])}" if len(set(inner)) == 1 else ", ".join(map(_kind, inner))
    if origin is dict:
        return f"table of {_kind(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{one.value}`" for one in annotation)
    words = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "–"
    if isinstance(value, BaseModel):
        return "see below"
    if field.default_factory:  # a page is the same on every machine
        return "by machine"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return f"`{text}`" if text not in ("{}", "[]") else "empty"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main() -> int:
    """Rewrite what is outdated; return 1 if anything was."""
    stale = {path: text for path, text in generated().items() if not path.is_file() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        path.write_text(text, "utf-8")
        print(f"rewritten: {path.relative_to(ROOT)}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
