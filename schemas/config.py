"""How a TOML file becomes a build config: strict types, unknown keys refused with the nearest known one."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from earmark.schemas.errors import ConfigError
from earmark.schemas.files import NotAFile, read_regular
from earmark.schemas.places import is_url, place_of, require_below_roots, url_fault, without_place, without_secrets

if TYPE_CHECKING:
    from earmark.schemas.annotation import AnnotatorConfig

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Lower-case letters, digits, . _ -")]

LINKS = "EARMARK_LINKS"
LARGEST = 2**63 - 1  # what a column of integers holds


class Model(BaseModel):
    """A part of a config: immutable, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    # Keys that an earlier release had, and what they are called now. A config file that has one is refused with the new
    # key; the config in an earlier version's manifest is read as if it had the new key.
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _keys_of_now(cls, values: Any, info: ValidationInfo) -> Any:
        names = {old: new for base in cls.__mro__ for old, new in vars(base).get("renamed", {}).items()}
        if not isinstance(values, dict) or names.keys().isdisjoint(values):
            return values
        if info.context and info.context.get("recorded"):
            return {names.get(key, key): value for key, value in values.items()}
        old = min(names.keys() & values.keys())
        raise ValueError(f"key '{old}' is now called '{names[old]}'")

    @field_validator("*")
    @classmethod
    def _fits_a_column(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ValueError(f"expected a whole number of at most {LARGEST}")
        return value


class OwnWords(Model):
    """The words in which a model is asked."""

    prompt: str = Field(description="A Markdown file as `earmark prompts show NAME` prints one.")


class Linked(Model):
    """What names a folder of files."""

    links: Literal["refuse", "follow"] = Field(
        default="refuse",
        description="`refuse` or `follow` links that lead out of the folder. Only a config file may say `follow`; a "
        "deployment's parameters may where the worker has EARMARK_LINKS=follow.",
    )

    @field_validator("links")
    @classmethod
    def _set_by_the_owner(cls, value: str, info: ValidationInfo) -> str:
        """Whoever may only start runs, by parameters, chooses among the files of their folders and no others."""
        if value == "follow" and not (info.context or {}).get("file") and os.environ.get(LINKS) != "follow":
            raise ValueError(f"expected 'refuse' among a run's parameters; set {LINKS}=follow where the worker runs")
        return value


class Licence(Model):
    """What the owner of a source allows; `earmark publish` obeys it."""

    licence: str | None = Field(default=None, description="SPDX identifier, such as `CC-BY-4.0`, or the owner's words.")
    redistribute: Literal["all", "rows", "none"] = Field(
        default="rows",
        description="What may be published: rows and audio (`all`), rows without audio (`rows`), nothing (`none`).",
    )


class Share(Model):
    """What one shard takes of a cluster's machine while it is worked on."""

    cpus: float = Field(gt=0, le=1024, description="Processors.")
    gpus: float = Field(default=0, ge=0, le=64, description="GPUs; a part of one, or whole ones.")

    @field_validator("gpus")
    @classmethod
    def _part_or_whole(cls, value: float) -> float:
        if value > 1 and not value.is_integer():
            raise ValueError("expected at most 1, or a whole number")
        return value


class Resources(Model):
    """What shards take, by what they do. A cluster without GPUs takes shards with a model for `audio`."""

    annotate: Share = Field(default=Share(cpus=0.5), description="Asks a model behind a server: it mostly waits.")
    audio: Share = Field(default=Share(cpus=1), description="Reads lists, decodes, measures, separates on a processor.")
    gpu: Share = Field(default=Share(cpus=1, gpus=1), description="Holds a model: a separator, vllm:, transformers:.")


class Engine(Model):
    """Where shards are worked on. The version is the same; `identity` and the manifest know nothing of it."""

    runner: Literal["threads", "ray"] = Field(
        default="threads", description="Threads of one process, or processes of a cluster of Ray's."
    )
    address: str | None = Field(
        default=None,
        min_length=1,
        description="A cluster that runs already, such as `10.0.0.1:6379`, or `auto` for the one of this machine; "
        "without it, one on this machine that ends with the build.",
    )
    workers: int | None = Field(
        default=None, ge=1, le=1024, description="Processors of that own cluster; without it, all of this machine."
    )
    resources: Resources = Field(default=Resources(), description="What a shard takes.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.runner == "threads" and (self.address or self.workers):
            raise ValueError("address and workers belong to a cluster: expected runner = 'ray' beside them")
        if self.address and self.workers:
            raise ValueError("expected address (a cluster that runs) or workers (one of its own), found both")
        return self


class Embedding(Model):
    """Clips that are near-duplicates by the embeddings of a CLAP model, kept in the store by clip and model."""

    model: str = Field(description="A CLAP model of `transformers`: a folder or a name on the Hub.")
    least: float = Field(
        default=0.98, ge=-1, le=1, description="Cosine from which clips are near-duplicates; it differs by model."
    )


class Decontaminate(Model):
    """What of others may not be in a version: the test data of versions and of released benchmarks."""

    against: tuple[str, ...] = Field(
        min_length=1,
        description="Versions (`CORPUS@vN`, or `CORPUS` for another corpus's newest) and released benchmarks "
        "(`LAYOUT:PATH`, such as `anyaudio-judge-bench:../bench`).",
    )
    audio_roots: tuple[str, ...] = Field(
        default=(),
        description="Folders that the clips' paths of released benchmarks start from, tried in order; without one, the "
        "benchmark's own folder.",
    )
    texts_only: bool = Field(
        default=False, description="Released benchmarks are compared by their texts alone: their clips are not here."
    )
    splits: tuple[str, ...] = Field(default=("test",), min_length=1, description="Splits of those versions.")
    captions: float = Field(
        default=0.8, ge=0.5, le=1, description="Jaccard similarity from which texts are near-duplicates."
    )
    fingerprint: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Likeness of acoustic fingerprints from which clips are one recording, such as 0.9; needs "
        "Chromaprint. 0 compares clips by hash alone.",
    )
    embedding: Embedding | None = Field(
        default=None, description="Clips are also compared by embeddings: renditions that no fingerprint shows."
    )

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions among `against`."""
        return tuple(one for one in self.against if ":" not in one)

    @property
    def releases(self) -> tuple[tuple[str, str], ...]:
        """Layout and path of the released benchmarks among `against`."""
        return tuple((layout, path) for layout, mark, path in (one.partition(":") for one in self.against) if mark)


class BuildConfig(Model):
    """What every corpus's config holds."""

    corpus: str = Field(description="The corpus to build; see `earmark list`.")
    seed: int = Field(default=17, ge=0, le=LARGEST, description="Seed of every choice that is drawn.")
    limit: int | None = Field(
        default=None, ge=1, le=LARGEST, description="Only the first rows of each source: to try a config."
    )
    licences: dict[str, Licence] = Field(
        default={}, description="Licences by source, as the tables name it. Without one, audio is not published."
    )
    engine: Engine = Field(default=Engine(), description="Where shards are worked on; not part of what is built.")
    most_rejected: float | None = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share of a source's rows that may be lost to faults of reading and indexing; beyond it, nothing "
        "is committed, nor is an empty main table. 1.0 allows any share; null, which `--allow-rejects` sets, also an "
        "empty main table. Not part of what is built.",
    )
    asks: dict[str, OwnWords] = Field(
        default={},
        description="Prompts of your own, by the name of the package's that each takes the place of: "
        "`earmark prompts list`.",
    )
    decontaminate: Decontaminate | None = Field(
        default=None, description="What is kept out: clips of the same bytes or sound, texts that say nearly the same."
    )
    base: Path = Field(
        default=Path(), description="Folder that relative paths start from: the config file's own; else given here."
    )

    @field_validator("base")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value if is_url(str(value)) else value.absolute()  # a cluster's processes work in other folders

    @model_validator(mode="after")
    def _urls_hold_no_secrets(self) -> Self:
        for key, value in _texts(self.model_dump()):
            if value != without_secrets(value):
                raise ValueError(f"{key}: expected a URL without user and password; keys come from the environment")
        return self

    def path(self, written: str | Path) -> Path:
        """The absolute path of a path as the config writes it (relative to the config's folder).

        A URL has a place in the cache, where `tasks/build/mirror.py` brings its object.

        Raises:
            ConfigError: the URL is of another kind, or holds more than bucket and key; or it lies outside
                `EARMARK_ROOTS`.
        """
        where = str(written) if is_url(str(written)) else str(self.base / written)
        if is_url(where) and (fault := url_fault(where)):
            raise ConfigError(f"input: {fault}")
        require_below_roots("input", where)
        return place_of(where) if is_url(where) else Path(where).absolute()

    def own_prompts(self) -> dict[str, Path]:
        """The user's own prompt files, by the name of the prompt that each takes the place of."""
        return {name: self.path(words.prompt) for name, words in self.asks.items()}

    def recorded(self) -> dict[str, Any]:
        """The config as a manifest keeps it: as written, with defaults.

        Without what cannot change a row: the folder it lay in, the engine, and how many faults stop a build.
        """
        return self.model_dump(mode="json", exclude={"base", "engine", "most_rejected"})

    def inputs(self) -> list[str]:
        """What the config names, as it writes it, of files and folders that are there: lists, audio, models."""
        written = {text for _, text in _texts(self.model_dump(exclude={"base", "corpus", "engine"}))}
        return sorted(text for text in written - {"", "."} if self.finds(text))

    def finds(self, written: str) -> bool:
        """Whether a text of the config is the path of a file or folder that is there, or a URL that was brought."""
        try:
            return os.path.exists(self.path(written))  # noqa: PTH110  # a text that no path can be is none
        except ConfigError:
            return False

    def reads(self) -> tuple[str, ...]:
        """The versions of corpora that a build reads, as the config names them: `CORPUS` or `CORPUS@vN`."""
        return ()

    def parents(self) -> tuple[str, ...]:
        """The versions that decide what a build holds: those that it reads, and those that it keeps out.

        One that is read twice stands twice: the build key tells which of a config's parts reads which.
        """
        return *self.reads(), *(self.decontaminate.versions if self.decontaminate else ())

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Who is asked, by role; empty where a build asks nobody."""
        return {}

    def targets(self) -> dict[str, int]:
        """How many rows a build is to hold, by what they are; empty where all there are stay. A dry run shows them."""
        return {}

    def for_forecast(self) -> Self:
        """The config by which a dry run reads and chooses: without what costs time and changes no request."""
        return self

    def source_of(self, file: str) -> str:
        """The source of an input, by the file that its rejects name: here, each file is one."""
        return file

    def identity(self) -> dict[str, Any]:
        """What of the config decides what a version holds and what of it may leave; enters the build key.

        Where inputs lie does not decide it: `digest_inputs` of each corpus gives their digests, and what their folders
        decide. Each input's name, as rows have it, stays, since it tells which input is what.
        """
        values = self.recorded()
        del values["asks"]  # the digests of own prompts enter the key by themselves
        if self.decontaminate is None:
            del values["decontaminate"]
        else:  # what it names stands among the parents and the inputs
            for name in ("against", "audio_roots", "texts_only"):
                del values["decontaminate"][name]
            if self.decontaminate.embedding is None:
                del values["decontaminate"]["embedding"]
            else:
                values["decontaminate"]["embedding"]["model"] = without_place(self.decontaminate.embedding.model)
        return values


Config = TypeVar("Config", bound=Model)
Checked = TypeVar("Checked", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing, a folder or a pipe, not UTF-8 or not TOML.
    """
    try:
        return tomllib.loads(read_regular(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"config not found: {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: expected a TOML file, found a folder") from None
    except NotAFile as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # a path that no file can have
        raise ConfigError(f"{str(path)!r}: cannot be read: {error}") from None


def parse_config(model: type[Config], values: dict[str, Any], where: Path) -> Config:
    """Check the values of a config file (`where`) against its model; relative paths start from that file.

    Raises:
        ConfigError: one line that names the first faulty key, what was expected and what was found.
    """
    if "base" in values:
        raise ConfigError(f"{where}: unknown key 'base'{nearest('base', _fields_at(model, ()))}")
    return checked(model, {**values, "base": where.parent.absolute()}, where)


def checked(model: type[Checked], values: dict[str, Any], where: Path) -> Checked:
    """Check values against a model that is no build's.

    Raises:
        ConfigError: as `parse_config`.
    """
    try:
        return model.model_validate(values, context={"file": where})
    except ValidationError as error:
        raise ConfigError(f"{where}: {_one_line(model, error)}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'seed'?`, or the known words where none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in the values of a config, with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{key}[{place}]")


def _one_line(model: type[BaseModel], error: ValidationError) -> str:
    errors = error.errors()
    first = min(errors, key=lambda e: e["type"] != "extra_forbidden")  # a misspelt key explains a missing one
    key = _dotted(first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'{nearest(str(first['loc'][-1]), _fields_at(model, first['loc'][:-1]))}{more}"
    if first["type"] == "missing":
        return f"missing key '{key}'{more}"
    message = first["msg"].removeprefix("Value error, ")
    if not key:
        return f"{message}{more}"
    said = f"{key}: {message[0].lower()}{message[1:]}"
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return f"{said}{more}"  # a rule over a whole table says itself what it found
    found = without_secrets(repr(first["input"]))
    return f"{said}, found {found if len(found) <= 80 else found[:77] + '...'}{more}"


def _dotted(loc: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    return text if text.isprintable() else ascii(text)[1:-1]


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Names that are allowed where an unknown key stood."""
    here: Any = model
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = here.model_fields[str(part)].annotation
        here = _inner_model(here)
    if not (isinstance(here, type) and issubclass(here, BaseModel)):
        return []
    return [name for name in here.model_fields if name != "base"]


def _inner_model(annotation: Any) -> Any:
    """The model inside `list[Model]`, `dict[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = [_inner_model(argument) for argument in getattr(annotation, "__args__", ())]
    return next((m for m in models if isinstance(m, type) and issubclass(m, BaseModel)), annotation)
