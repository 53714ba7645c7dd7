"""Register names for configs and the command line: our own, and those of installed packages by entry points.

    ours = registered("earmark.tasks.importers")
    LAYOUTS = Registry("layout of tracks", "earmark.importers", Layout, ours, prefix="tracks.")

One of ours registers in its own module, `TABLE = register("tracks.table")(Layout(…))`. A package adds one by an entry
point of the group, `"tracks.lab" = "lab.earmark:LAYOUT"`. Names are known without an import; a package that cannot be
imported is the fault of those alone who use it.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import CoreSchema, core_schema

from earmark.schemas.errors import ConfigError

Kind = TypeVar("Kind")
Declared = TypeVar("Declared")


def register(name: str) -> Callable[[Declared], Declared]:
    """Register a declaration of a module, or as a decorator a function or class, by a name as of an entry point."""
    return lambda declared: declared  # `registered` reads the call


class Registration(NamedTuple):
    """A call that registers something, as it stands in a module."""

    name: str
    reference: str  # `module:NAME`
    facts: dict[str, Any]  # the literal keywords of a decorator


@cache
def registered(package: str, files: str = "*.py", mark: str = "register") -> tuple[Registration, ...]:
    """Read the registrations of a package from the text of its modules, in order.

    Nothing is imported: all backends take a quarter of a second, and a command needs one.

    Args:
        files: the modules, a pattern of paths below the package.
        mark: the function that registers.
    """
    pattern = re.compile(
        rf'^(?:(\w+) = {mark}\(\s*"([\w.-]+)"|@{mark}\(((?:.|\n)+?)\)\n(?:class|def) (\w+))', re.MULTILINE
    )
    folder, found = folder_of(package), []
    for path in sorted(folder.glob(files)):
        module = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
        for assigned, name, arguments, decorated in pattern.findall(path.read_text("utf-8")):
            call = ast.parse(f"{mark}({arguments})", mode="eval").body
            assert isinstance(call, ast.Call)
            facts = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
            name = name or ast.literal_eval(call.args[0])
            found.append(Registration(name, f"{module}:{assigned or decorated}", facts))
    return tuple(found)


def folder_of(package: str) -> Path:
    """Return the folder of an importable package, without importing it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@dataclass(frozen=True, slots=True)
class Registered:
    """The place of a declaration."""

    declared: Any  # the declaration itself, or its `module:name`
    package: tuple[str, str] | None = None  # name and version of the package that adds it; None for ours


@dataclass(frozen=True)
class Registry(Generic[Kind]):
    """Declarations of one kind by name."""

    what: str  # one of them, for messages
    group: str  # the entry points' group
    kind: type[Kind]  # what each declaration is
    ours: Mapping[str, Kind | str] | tuple[Registration, ...]  # the declarations, their `module:name`, or registrations
    prefix: str = ""  # what the names begin with, where several registries share a group
    loaded: dict[str, Kind] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def own(self) -> dict[str, Kind | str]:
        """Ours by name: the declarations, or their `module:name`."""
        if isinstance(self.ours, Mapping):
            return {**self.ours}
        found = ((one.name, one.reference) for one in self.ours)
        return {name.removeprefix(self.prefix): place for name, place in found if name.startswith(self.prefix)}

    @cached_property
    def entries(self) -> dict[str, Registered]:
        """All of them by name, ours first; no package is imported.

        Raises:
            ConfigError: two packages, or a package and Earmark, add the same name.
        """
        known = {name: Registered(declared) for name, declared in self.own.items()}
        for point in sorted(_entry_points().select(group=self.group), key=lambda point: point.name):
            if not point.name.startswith(self.prefix):
                continue
            name = point.name.removeprefix(self.prefix)
            package = (point.dist.name, point.dist.version) if point.dist else (point.module.partition(".")[0], "")
            if name in known:
                other = known[name].package
                raise ConfigError(
                    f"{self.what} '{name}' is there twice: of {other[0] if other else 'Earmark'} and of the installed "
                    f"package {package[0]}; remove that package, or rename its entry point"
                )
            known[name] = Registered(point.value, package)
        return known

    def find(self, name: str) -> Kind:
        """Return the declaration of that name, which is one of `entries`.

        Raises:
            ConfigError: its package cannot be imported, or declares something else.
        """
        if name not in self.loaded:
            self.loaded[name] = self._load(name, self.entries[name])
        return self.loaded[name]

    def all(self) -> tuple[dict[str, Kind], dict[str, str]]:
        """Those that can be imported, and of the others what is wrong with their packages, by name."""
        faults = {}
        for name in self.entries:
            try:
                self.find(name)
            except ConfigError as error:
                faults[name] = str(error)
        return {name: self.loaded[name] for name in self.entries if name not in faults}, faults

    def _load(self, name: str, entry: Registered) -> Kind:
        declared = entry.declared
        try:
            declared = load(declared) if isinstance(declared, str) else declared
        except Exception as error:
            if entry.package is None:
                raise
            raise ConfigError(
                f"{self.what} '{name}': the package {' '.join(entry.package)} cannot be imported: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        if not isinstance(declared, self.kind) or getattr(declared, "name", name) != name:
            raise ConfigError(
                f"{self.what} '{name}': expected {entry.declared} to be a {self.kind.__name__} of that name, "
                f"found {declared!r:.80}"
            )
        return declared


@dataclass(frozen=True)
class OneOf:
    """Marks a text of a config that names something registered: `format: Annotated[str, OneOf("module:REGISTRY")]`."""

    reference: str  # `module:name` of the registry, looked up when a config is read
    form: str = ""  # for a text that begins with the name and a colon, how it is written

    @property
    def registry(self) -> Registry[Any]:
        """The registry."""
        registry: Registry[Any] = load(self.reference)
        return registry

    def find(self, value: str) -> Any:
        """Return the declaration that a text of a config names."""
        return self.registry.find(self._name(value))

    def named(self, value: str) -> Iterator[Registered]:
        """Return its declaration, and the name after the colon if its `functions` gives a registry of such names."""
        inner = getattr(self.find(value), "functions", None)
        yield self.registry.entries[self._name(value)]
        if inner is not None:
            functions, name = load(inner)(), value.partition(":")[2]
            if name in functions.entries:
                functions.find(name)
                yield functions.entries[name]

    def _name(self, value: str) -> str:
        return value.partition(":")[0] if self.form else value

    def _check(self, value: str) -> str:
        complete = not self.form or value.partition(":")[2].strip()
        if not complete or self._name(value) not in self.registry.entries:
            known = ", ".join(self.registry.entries)
            what = f"{self.form} with a {self.form.partition(':')[0]} of" if self.form else "one of"
            raise ValueError(f"expected {what} {known}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Callable[[Any], dict[str, Any]]) -> Any:
        names = list(self.registry.entries)
        return handler(schema) | ({"pattern": f"^({'|'.join(names)}):"} if self.form else {"enum": names})


def named_in(part: object) -> Iterator[Registered]:
    """Everything registered that a config names, at any depth.

    Raises:
        ConfigError: the package that adds one of them cannot be imported.
    """
    if isinstance(part, BaseModel):
        for name, info in type(part).model_fields.items():
            value = getattr(part, name)
            for mark in info.metadata:
                if isinstance(mark, OneOf) and value is not None:
                    yield from mark.named(value)
            yield from named_in(value)
    elif isinstance(part, tuple | dict):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from named_in(inner)


def load(reference: str) -> Any:
    """Import and return the object at `module:name`."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


@cache
def _entry_points() -> Any:  # of another type in Python 3.11
    """Those of all groups, read once: each look takes some 10 ms."""
    return metadata.entry_points()
