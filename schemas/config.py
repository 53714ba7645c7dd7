"""Declare the options that the configs of all corpora share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from earmark.schemas.errors import ConfigError
from earmark.schemas.places import (
    is_url,
    place_of,
    require_below_roots,
    url_fault,
    without_place,
    without_places,
    without_secrets,
)
from earmark.schemas.toml import LARGEST, Model, changed, moved, read_toml, without

if TYPE_CHECKING:
    from earmark.schemas.annotation import AnnotatorConfig

MODELS = "EARMARK_MODELS"


PROMPTS, PAPER = "prompts", "paper-structure"
"""The key of `asks` that names a set of prompts, and the set."""
ChosenPrompts: TypeAlias = dict[str, Path | int | str]
"""Files or versions by the prompt's name; and by `PROMPTS`, the set."""


def _prompts_or_set(value: Any) -> Any:
    """Refuse the tables of before with the new spelling, and an unknown set."""
    for name, one in value.items() if isinstance(value, dict) else ():
        if isinstance(one, dict):
            written = one.get("version") or one.get("prompt")
            raise moved(f"a prompt is a file or a version: expected [asks] with {name} = {written!r}")
        if name == PROMPTS and one != PAPER:
            raise ValueError(f"expected prompts = '{PAPER}', found {one!r}")
    return value


def placed_prompts(asks: Mapping[str, str | int], place: Callable[[str], Path]) -> ChosenPrompts:
    """Return the values of `asks` with their files placed."""
    return {name: one if isinstance(one, int) or name == PROMPTS else place(one) for name, one in asks.items()}


def respelled_asks(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of 1.0.0 whose prompts are files or versions."""
    asks = values.get("asks")
    if not isinstance(asks, dict) or not any(isinstance(one, dict) for one in asks.values()):
        return values
    return {
        **values,
        "asks": {
            name: (one.get("version") or one.get("prompt")) if isinstance(one, dict) else one
            for name, one in asks.items()
        },
    }


OwnPrompts = Annotated[
    dict[str, Annotated[str, Field(min_length=1, strict=True)] | Annotated[int, Field(ge=1, strict=True)]],
    BeforeValidator(_prompts_or_set),
]


class Licence(Model):
    """Permissions of a source's owner; `earmark publish` obeys them."""

    licence: str | None = Field(default=None, description="SPDX identifier, such as `CC-BY-4.0`, or the owner's words.")
    redistribute: Literal["all", "rows", "none"] = Field(
        default="rows",
        description="What may be published: rows and audio (`all`), rows without audio (`rows`), nothing (`none`).",
    )


ENGINE = "EARMARK_ENGINE"
RUNS_WITH = ("base", "limit")  # of a run, not of a config file: `--limit`, and the file's own folder


class Engine(NamedTuple):
    """Place of work on shards: threads of this process, or a Ray cluster.

    Attributes:
        runner: threads or ray.
        address: a cluster that runs already; None is one on this machine that ends with the build.
        workers: processors of that own cluster; None is all of this machine.
    """

    runner: str = "threads"
    address: str | None = None
    workers: int | None = None

    @classmethod
    def of_environment(cls) -> Self:
        """Read `EARMARK_ENGINE`.

        Raises:
            ConfigError: it names no place of work.
        """
        written = os.environ.get(ENGINE) or "threads"
        if not re.fullmatch(r"threads|ray(:(0*[1-9][0-9]{0,3}|\S*[^\s\d]\S*))?", written):
            raise ConfigError(
                f"{ENGINE}: expected threads, ray, ray:8 (processors), ray:auto or ray:HOST:PORT, found {written!r}"
            )
        runner, _, where = written.partition(":")
        return cls(runner, None, int(where)) if where.isdecimal() else cls(runner, where or None)


FINGERPRINT = "fingerprint"
_NEAR = re.compile(r"(\S(?:(?! [<>=]).)*) >= (-?\d+(?:\.\d+)?(?:e-\d+)?)")  # measure, and its least likeness


class Decontaminate(Model):
    """Data excluded from a version: the test data of other versions and of released benchmarks."""

    against: tuple[str, ...] = Field(
        min_length=1,
        description="Versions (`CORPUS@vN`, or `CORPUS` for another corpus's newest) and released benchmarks "
        "(`LAYOUT:PATH`, such as `anyaudio-judge-bench:../bench`). Of versions the split `test` counts, or all if they "
        "have none; benchmarks count whole.",
    )
    audio_roots: tuple[str, ...] | Literal[False] = Field(
        default=(),
        description="Folders that the clips' paths of released benchmarks start from, tried in order; without one, the "
        "benchmark's own folder. `false`: texts alone are compared, since the clips are not here.",
    )
    near: tuple[str, ...] = Field(
        default=(),
        description="Likeness beside equal bytes: `fingerprint >= 0.9`, of acoustic fingerprints, which needs "
        "Chromaprint; `MODEL >= 0.98`, of embeddings by a CLAP model of `transformers`, a folder or a name on the Hub, "
        "which show renditions that no fingerprint shows. Cosines differ by model.",
    )

    @field_validator("near")
    @classmethod
    def _measures_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parts = [_NEAR.fullmatch(one) for one in value]
        prints = [one for one in parts if one and one[1] == FINGERPRINT]
        if not all(one and -1 <= float(one[2]) <= 1 for one in parts) or any(float(one[2]) <= 0 for one in prints):
            raise ValueError("expected 'fingerprint >= 0.9' (above 0) or 'MODEL >= 0.98', with a number up to 1")
        if len(prints) > 1 or len(value) - len(prints) > 1:
            raise ValueError("expected one 'fingerprint >= NUMBER' and one 'MODEL >= NUMBER' at most")
        return value

    @model_validator(mode="before")
    @classmethod
    def _near_holds_thresholds(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict) or (info.context or {}).get("recorded"):
            return values
        if old := min({"fingerprint", "embedding", "cosine"} & values.keys(), default=None):
            near = cls.respelled(values).get("near")
            raise moved(
                f"key '{old}' "
                + (f"stands in near: write near = {near}" if near else "is no option any more: leave it out")
            )
        return values

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {**values, "audio_roots": False} if values.get("texts_only") else values
        likeness, table = values.get("fingerprint") or 0, values.get("embedding")
        held = table if isinstance(table, dict) else {"model": table, "least": values.get("cosine", 0.98)}
        model, least = held.get("model"), held.get("least", 0.98)
        near = [*([f"{FINGERPRINT} >= {likeness}"] if likeness else []), *([f"{model} >= {least}"] if model else [])]
        kept = {key: one for key, one in values.items() if key not in ("fingerprint", "embedding", "cosine")}
        return {**kept, "near": [*kept.get("near", ()), *near]} if near else kept

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        embedding = self.embedding and {"model": self.embedding[0], "least": self.embedding[1]}
        values = {**without(values, "near"), "fingerprint": self.fingerprint, "embedding": embedding}
        return {**values, "audio_roots": [], "texts_only": True} if self.audio_roots is False else values

    @property
    def _likeness(self) -> dict[str, float]:
        return {parts[1]: float(parts[2]) for parts in map(_NEAR.fullmatch, self.near) if parts}

    @property
    def fingerprint(self) -> float:
        """Return the likeness of fingerprints from which clips are one recording; 0 for none."""
        return self._likeness.get(FINGERPRINT, 0.0)

    @property
    def embedding(self) -> tuple[str, float] | None:
        """Return the model of embeddings, and the cosine from which clips are near-duplicates."""
        return next((one for one in self._likeness.items() if one[0] != FINGERPRINT), None)

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions in `against`."""
        return tuple(one for one in self.against if ":" not in one)

    @property
    def releases(self) -> tuple[tuple[str, str], ...]:
        """Return layout and path of the released benchmarks in `against`."""
        return tuple((layout, path) for layout, mark, path in (one.partition(":") for one in self.against) if mark)


class Declaring(Model):
    """Base of configs whose roles name declared models."""

    models: dict[str, Any] = Field(
        default={},
        exclude=True,
        description='Models by name, for roles with `model = "NAME"`. Further ones may stand in `models.toml` beside '
        "the config, and in the file that `EARMARK_MODELS` names.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _declare(cls, values: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Show the declared models to the roles of this config."""
        if not isinstance(values, dict):
            return handler(values)
        file = (info.context or {}).get("file")
        place = file if isinstance(file, Path) else Path("config")
        models, base = values.get("models"), values.get("base")
        folder = Path(base) if isinstance(base, str | Path) else place.parent
        token = _DECLARED.set((models if isinstance(models, dict) else {}, place, folder))
        try:
            return handler(values)
        finally:
            _DECLARED.reset(token)


_DECLARED: ContextVar[tuple[dict[str, Any], Path, Path]] = ContextVar("models of the config that is read")


def declarations() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the tables with models for the config that is read, nearest first, with their files.

    Raises:
        ConfigError: a file of models cannot be read.
    """
    own, place, folder = _DECLARED.get(({}, Path("config"), Path()))
    if own:
        yield place, {"models": own}
    files = [] if is_url(str(folder)) else [folder / "models.toml"]
    if files and files[0].exists():
        require_below_roots("models", str(files[0]))
        yield files[0], read_toml(files[0])
    if named := os.environ.get(MODELS):
        if Path(named).is_dir():
            raise ConfigError(
                f"{MODELS}={named}: expected a TOML file with [models.NAME], found a folder; the folder of separation "
                "checkpoints is EARMARK_CHECKPOINTS"
            )
        yield Path(named), read_toml(Path(named))


class BuildConfig(Declaring):
    """Base of every corpus's config."""

    corpus: str = Field(description="The corpus to build; see `earmark list`.")
    seed: int = Field(default=17, ge=0, le=LARGEST, description="Seed of every choice that is drawn.")
    limit: int | None = Field(default=None, ge=1, le=LARGEST, description="Only the first rows of each source.")
    licences: dict[str, Licence] = Field(
        default={}, description="Licences by source, as the tables name it. Without one, audio is not published."
    )
    most_rejected: float | None = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share of a source's rows that may be lost to faults of reading and indexing, and of an ask's rows "
        "to answers of no right form; beyond it, nothing is committed, nor is an empty main table, nor where of an "
        "ask's first 20 rows none passes. 1.0 allows any share; null, which `--allow-rejects` sets, also the others. "
        "Not part of what is built.",
    )
    asks: OwnPrompts = Field(
        default={},
        description="Prompts by name (`earmark prompts list`): a Markdown file of your own as `earmark prompts show "
        "NAME` prints one, or a version of the package's. Without one a config stays on the version that its newest "
        'build used; its first build takes the newest. `prompts = "paper-structure"` takes all that have the papers\' '
        "structure.",
    )
    _stays: dict[str, int] = PrivateAttr(default={})
    decontaminate: Decontaminate | None = Field(
        default=None, description="What is kept out: clips of the same bytes or sound, texts that say nearly the same."
    )
    base: Path = Field(
        default=Path(), description="Folder that relative paths start from: the config file's own; else given here."
    )

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        return respelled_asks(super().respelled(values))

    @classmethod
    def spelling(cls) -> dict[str, str]:
        return {name: key for name, key in super().spelling().items() if name not in RUNS_WITH}

    @field_validator("base")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value if is_url(str(value)) else value.absolute()  # processes of a cluster work in other folders

    @model_validator(mode="after")
    def _urls_hold_no_secrets(self) -> Self:
        for key, value in _texts(self.model_dump()):
            if value != without_secrets(value):
                raise ValueError(f"{key}: expected a URL without user and password; keys come from the environment")
        return self

    def path(self, written: str | Path) -> Path:
        """Return the absolute path of a path in the config (relative to the config's folder).

        A URL has a place in the cache, to which `tasks/pipeline/mirror.py` copies its object.

        Raises:
            ConfigError: the URL is of another kind, or has more than bucket and key; or it lies outside
                `EARMARK_ROOTS`.
        """
        where = str(written) if is_url(str(written)) else str(self.base / written)
        if is_url(where) and (fault := url_fault(where)):
            raise ConfigError(f"input: {fault}")
        require_below_roots("input", where)
        return place_of(where) if is_url(where) else Path(where).absolute()

    def names(self, path: Path) -> str:
        """Return the option that names a file: by its path, or else by the longest end of it; empty without one."""
        ends = {key: f"/{Path(text)}" for key, text in _texts(self.model_dump()) if text and not is_url(text)}
        whole = {key for key, end in ends.items() if (self.base / end[1:]).absolute() == path}
        named = whole or {key for key, end in ends.items() if str(path).endswith(end)}
        return max(sorted(named), key=lambda key: len(ends[key]), default="")

    def own_prompts(self) -> ChosenPrompts:
        """Return the user's own prompt files, chosen or kept prompt versions, and the chosen set."""
        return {**self._stays, **placed_prompts(self.asks, self.path)}

    @property
    def stays(self) -> dict[str, int]:
        """Return the older prompt versions kept by the config without naming them."""
        return self._stays

    def staying(self, versions: dict[str, int]) -> Self:
        """Return this config with these versions of prompts, except where it names one."""
        config = self.model_copy()
        config._stays = versions
        return config

    def recorded(self) -> dict[str, Any]:
        """Return the config for a manifest: as written, with defaults.

        It omits values without effect on rows: the config's folder, and the tolerated share of faults. Keys that are
        constants now are among them, as in versions of before.
        """
        values = self.model_dump(mode="json", exclude={"base", "most_rejected"}, context={"recorded": True})
        return without(values, "engine")  # it was no part of what is built

    def inputs(self) -> list[str]:
        """Return the config's texts, as written, for existing files and folders: lists, audio, models."""
        written = {text for _, text in _texts(self.model_dump(exclude={"base", "corpus"}))}
        if self.decontaminate and self.decontaminate.embedding:
            written.add(self.decontaminate.embedding[0])
        return sorted(text for text in written - {"", "."} if self.finds(text))

    def finds(self, written: str) -> bool:
        """Return whether a text of the config is the path of an existing file or folder, or a URL in the cache."""
        try:
            return os.path.exists(self.path(written))  # noqa: PTH110  # a text invalid as a path is no path
        except ConfigError:
            return False

    def reads(self) -> tuple[str, ...]:
        """Return the versions of corpora read by a build, as in the config: `CORPUS` or `CORPUS@vN`."""
        return ()

    def parents(self) -> tuple[str, ...]:
        """Return the versions with effect on a build's content: read or excluded.

        A version read twice appears twice: the build key records which part of a config reads which.
        """
        return *self.reads(), *(self.decontaminate.versions if self.decontaminate else ())

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Return the annotators by role; empty for a build without annotators."""
        return {}

    def kept_apart(self) -> list[tuple[str, str, str]]:
        """Return columns without common values between splits: table, value of its column `dataset`, column."""
        return []

    def targets(self) -> dict[str, int]:
        """Return the target number of rows by kind; empty if all rows stay. A dry run shows them."""
        return {}

    def for_forecast(self) -> Self:
        """Return the config for a dry run: without slow steps with no effect on requests."""
        return self

    def source_of(self, file: str) -> str:
        """Return the source of an input by the file in its rejects: by default, each file is a source."""
        return file

    def identity(self) -> dict[str, Any]:
        """Return the config's values with effect on a version's content or publication, for the build key.

        Places of inputs have no effect: `tasks/pipeline/inputs.py` gives their digests, and the effects of their
        folders. Each input's name in rows stays, since it distinguishes the inputs.
        """
        values = without(self.recorded(), "asks")  # the digests of own prompts enter the key separately
        if self.decontaminate is None:
            return without(values, "decontaminate")
        # its names are among the parents and the inputs
        values = without(values, "decontaminate.against", "decontaminate.audio_roots", "decontaminate.texts_only")
        if self.decontaminate.embedding is None:
            return without(values, "decontaminate.embedding")
        return changed(values, "decontaminate.embedding.model", without_places)


class ClipRule(NamedTuple):
    """Condition of `keep`."""

    scorer: str  # its TOML file, as written
    score: str | None  # a score of it; None for its only one
    sign: Literal[">=", "<=", ">", "<"]
    bound: float


_RULE = re.compile(
    r"([^\s](?:[^:]*[^\s:])?\.toml)(?: ([A-Za-z][A-Za-z0-9_-]*))? (>=|<=|>|<) (-?[0-9]+(?:\.[0-9]+)?)"
)  # scorer, score, sign and bound


class ClipsConfig(BuildConfig):
    """Build config of a corpus with audio."""

    keep: str | None = Field(
        default=None,
        description="Condition for clips: a scorer's TOML file (`earmark eval run --scorer`), a score of it unless it "
        "has one alone, `>=`, `>`, `<=` or `<`, and a number, such as `dnsmos.toml ovrl_mos >= 3`. Others are rejects. "
        "Only a config file may name a scorer, which may run code.",
    )

    @field_validator("keep")
    @classmethod
    def _one_condition(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Refuse other expressions, and any from run parameters: starting runs gives no access to code."""
        if value is not None and not _RULE.fullmatch(value):
            raise ValueError("expected 'FILE.toml SCORE >= NUMBER', with one of >=, >, <= and <")
        if value is not None and not (info.context or {}).get("file"):
            raise ValueError("expected no scorer among a run's parameters; a config file may name one")
        return value

    @model_validator(mode="after")
    def _measures_clips(self) -> Self:
        if self.keep is not None and getattr(self, "audio", None) == "none":
            raise ValueError("keep: expected audio = 'index' beside it: with 'none' no clip is read")
        return self

    @property
    def clip_rule(self) -> ClipRule | None:
        """Return the parts of `keep`."""
        if self.keep is None:
            return None
        parts = _RULE.fullmatch(self.keep)
        assert parts is not None
        scorer, score, sign, bound = parts.groups()
        return ClipRule(scorer, score, sign, float(bound))  # type: ignore[arg-type]

    def recorded(self) -> dict[str, Any]:
        values = super().recorded()
        return without(values, "keep") if self.keep is None else values  # as in versions of before

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        return values if self.keep is None else {**values, "keep": without_place(self.keep)}


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{key}[{place}]")
