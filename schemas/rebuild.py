"""The config of `earmark rebuild`: which corpora are kept up to date, from which configs, where they are published."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from earmark.schemas.toml import Model, Name


class Publication(Model):
    """Publication of a corpus, as by `earmark publish`."""

    repo: str = Field(description="The dataset repository on the Hub, ORG/NAME.")
    private: bool = Field(default=False, description="Only to a private repository.")
    audio: bool = Field(default=True, description="Whether audio leaves, where its licence allows.")
    allow_builtin: bool = Field(default=False, description="Whether labels of a `builtin:` annotator may leave.")
    allow_findings: Path | None = Field(default=None, description="A reviewed list of findings that may leave.")
    views: tuple[str, ...] = Field(default=(), description="Views of exports to add as configs, with their clips.")
    gate: Path | None = Field(default=None, description="YAML of `extra_gated_…` facts: access is asked for.")
    collection: str | None = Field(
        default=None, description="Title of the owner's collection on the Hub that it is added to; made if new."
    )


class Member(Model):
    """One corpus that is kept up to date."""

    corpus: Name
    config: Path = Field(description="Its build config, a TOML file.")
    publish: Publication | None = Field(default=None, description="Where it is published; left out: nowhere.")


class Rebuild(Model):
    """Builds for `earmark rebuild` to keep up to date. A corpus that reads versions of another is built after it."""

    builds: tuple[Member, ...] = Field(min_length=1, description="The corpora, in any order.")
    base: Path = Field(
        default=Path(), description="Folder that relative paths start from: the config file's own; else given here."
    )

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        names = [member.corpus for member in self.builds]
        if len(set(names)) < len(names):
            raise ValueError(f"expected each corpus once, found {', '.join(names)}")
        return self
