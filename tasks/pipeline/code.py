"""Digest the code of a corpus: the parsed code of its flow and all its imports, with their data, and their SQL.

A module's data lie beside it under its name, as `reasons.toml` beside `reasons.py`. Comments, docstrings, formatting
and progress texts are left out, and so are modules for display: rewording a sentence makes no build stale.
"""

import ast
import hashlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock

from earmark.schemas.places import cache_folder
from earmark.schemas.registry import folder_of
from earmark.tasks.store.files import write_text

OURS = "earmark"
SHOWING = re.compile(
    r"earmark\.tasks\.(pipeline\.(artifacts|logs|progress|report)|store\.(card|figures|report|result_table)|\w+\.(card|report))"
)
"""Modules that decide no row: progress, logs, cards, reports."""
SPOKEN = ("say", "telling", "working")  # calls whose first argument is a sentence for the user
SHOWN = {"Field": "description", "step": "label", "walk": "label", "Ask": "about"}
"""Keywords for display only, by their call."""
DATA: dict[str, Callable[[str], str]] = {".toml": lambda text: repr(tomllib.loads(text)), ".tsv": str}
"""Endings of a module's data, and what counts of their text."""
APART = ("Start", "Story", "Workload")  # declarations that decide no row
MOST_REMEMBERED = 1_000
_PARSING = Lock()  # CPython 3.11 counts one depth for all threads: parsing in two threads may end in SystemError
_REFERENCE = re.compile(r"\w+(\.\w+)+:\w+")
_QUERY = re.compile(r"[a-z_]+/[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Facts about a module's text."""

    code: str  # SHA-256 of its parsed code
    imports: tuple[str, ...]  # dotted names of possible imports: modules, and names taken from them
    queries: tuple[str, ...]  # texts that may name a query, such as `mos_preferences/ratings`
    references: tuple[str, ...]  # modules that texts may name, as `module:name`


def code_digest(module: str, *more: str) -> str:
    """Return a SHA-256 over the parsed code of modules, of their imports (ours or their package's), with the modules'
    data, and the queries.

    Args:
        module: `flows.<corpus>`, with the queries in `tasks/<corpus>/`, or the flow's module in another package, with
            its queries; queries named by the modules are added.
        more: modules of the layouts, backends and functions that the corpus's config names.
    """
    modules = _closure(module, *more) if "." in module else {}
    if not modules:
        raise ValueError(f"expected a module of ours, found '{module}'")
    digest = hashlib.sha256()
    for name, (path, parsed) in sorted(modules.items()):
        digest.update(f"{name} {parsed.code}\n".encode())
        for suffix, plain in DATA.items():
            if (data := path.with_suffix(suffix)).is_file():
                digest.update(f"{name}{suffix}\n{plain(data.read_text('utf-8'))}\n".encode())
    for name, path in sorted(_queries(module, (parsed for _, parsed in modules.values()))):
        digest.update(f"{name}\n{plain_sql(path.read_text('utf-8'))}\n".encode())
    return digest.hexdigest()


def parse(text: str) -> Parsed:
    """Parse a module's text.

    Raises:
        SyntaxError: it is not Python.
    """
    with _PARSING:
        tree = ast.parse(text)
    parts: list[str] = []
    _write(tree, parts)
    imports: list[str] = []
    texts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    code = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    queries = sorted(filter(_QUERY.fullmatch, texts))
    references = sorted(text.partition(":")[0] for text in filter(_REFERENCE.fullmatch, texts))
    return Parsed(code, tuple(sorted(set(imports))), tuple(queries), tuple(references))


def plain_sql(text: str) -> str:
    """Return a query without comment lines and indentation."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))


def _write(value: object, parts: list[str]) -> None:
    """Append a tree's nodes and values in one order. Skip empty fields: Python's releases differ in them."""
    if isinstance(value, ast.Expr) and isinstance(value.value, ast.Constant) and isinstance(value.value.value, str):
        return  # a docstring, of a module, class, function or name
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in APART:
        return
    if isinstance(value, ast.AST):
        parts.append(type(value).__name__)
        for name, held in _fields(value):
            parts.append(name)
            _write(held, parts)
        parts.append(")")
    elif isinstance(value, list):
        for held in value:
            _write(held, parts)
        parts.append("]")
    else:
        parts.append(repr(value))


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield a node's fields, without display texts: labels of progress and the descriptions of options."""
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    for name in node._fields:
        held: object = getattr(node, name, None)
        if isinstance(held, list) and called in SPOKEN and name == "args":
            held = held[1:]
        elif isinstance(held, list) and called in SHOWN and name == "keywords":
            held = [keyword for keyword in held if keyword.arg != SHOWN[called]]
        if held is not None and held != []:
            yield name, held


def _closure(*start: str) -> dict[str, tuple[Path, Parsed]]:
    """Return modules with all direct and indirect imports from ours or their packages, without display modules: file
    and facts by name."""
    remembered, roots = _recall(), {OURS, *(module.partition(".")[0] for module in start)}
    modules: dict[str, tuple[Path, Parsed]] = {}
    new: dict[str, Parsed] = {}
    waiting, seen = [*start], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] not in roots or SHOWING.fullmatch(name):
            continue
        seen.add(name)
        if (path := _file_of(name)) is None:
            continue
        raw = path.read_bytes()
        key = hashlib.sha256(raw).hexdigest()
        if (known := remembered.get(key)) is None:
            known = new[key] = parse(raw.decode("utf-8"))
        modules[name] = (path, known)
        waiting += known.imports
        if (
            name.startswith(f"{OURS}.tasks.") or name in start[1:]
        ):  # a build does not run everything that a corpus's declaration names
            waiting += known.references
    if new:
        _remember({**remembered, **new} if len(remembered) < MOST_REMEMBERED else new)
    return modules


def _file_of(name: str) -> Path | None:
    """Return a module's file; None for a name in a module and for a package without code."""
    package, _, last = name.rpartition(".")
    spec = importlib.util.find_spec(package or name)
    if spec is None or not package:
        return Path(spec.origin) if spec and spec.origin else None
    for folder in spec.submodule_search_locations or ():
        for path in (Path(folder, f"{last}.py"), Path(folder, last, "__init__.py")):
            if path.is_file():
                return path
    return None


def _queries(module: str, modules: Iterable[Parsed]) -> set[tuple[str, Path]]:
    """Return the SQL of a corpus's room or package, and queries named by modules, as in `query("importers/tracks")`."""
    rooms, package = folder_of(f"{OURS}.tasks"), module.partition(".")[0]
    room = rooms / module.rpartition(".")[2] if package == OURS else folder_of(package)
    own = {path.relative_to(room.parent).with_suffix("").as_posix(): path for path in room.rglob("*.sql")}
    named = {name: rooms / f"{name}.sql" for parsed in modules for name in parsed.queries}
    return {(name, path) for name, path in (named | own).items() if path.is_file()}


def _recall() -> dict[str, Parsed]:
    """Read the cache of parsed modules, by the SHA-256 of their text; parsing takes half the time of a plan."""
    try:
        held = json.loads((cache_folder() / "code.json").read_bytes())
        return {
            key: Parsed(one["code"], *(tuple(one[name]) for name in ("imports", "queries", "references")))
            for key, one in held.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # missing or damaged: parse everything again


def _remember(parsed: dict[str, Parsed]) -> None:
    try:
        write_text(cache_folder() / "code.json", json.dumps({key: asdict(one) for key, one in parsed.items()}))
    except OSError:
        return  # without a writable home, each plan takes half a second more
