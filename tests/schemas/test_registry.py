"""Registries: what is ours, what packages add, and what is said of a package that is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter

from earmark.schemas import registry
from earmark.schemas.errors import ConfigError
from earmark.schemas.registry import OneOf, Registry, named_in
from earmark.schemas.toml import Model, checked

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package `lab-words 2.1` with these entry points of the group `earmark.words`."""

    def put(points: str) -> None:
        facts = tmp_path / "lab_words-2.1.dist-info"
        facts.mkdir(exist_ok=True)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-words\nVersion: 2.1\n")
        (facts / "entry_points.txt").write_text(f"[earmark.words]\n{points}\n")
        (tmp_path / "lab_words.py").write_text("LONG = 'long'\nNUMBER = 3\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(registry, "_entry_points", registry._entry_points.__wrapped__)

    return put


def words(prefix: str = "") -> Registry[str]:
    return Registry("word", "earmark.words", str, {"short": "string:digits", "any": "string:printable"}, prefix)


def test_ours_come_first_and_a_package_adds_to_them(install: Install) -> None:
    install("long = lab_words:LONG\nother.kind = lab_words:LONG")
    assert list(words().entries) == ["short", "any", "long", "other.kind"]
    assert list(words("other.").entries) == ["short", "any", "kind"]
    assert words().find("long") == "long"
    assert (words().entries["long"].package, words().entries["short"].package) == (("lab-words", "2.1"), None)


def test_a_broken_package_is_a_line_for_who_uses_it(install: Install) -> None:
    install("lost = lab_nowhere:X\nnumber = lab_words:NUMBER\nabsent = lab_words:ABSENT")
    assert words().find("short") == "0123456789"
    line = r"^word 'lost': the package lab-words 2.1 cannot be imported: ModuleNotFoundError: No module named 'lab_nowh"
    with pytest.raises(ConfigError, match=line):
        words().find("lost")
    with pytest.raises(ConfigError, match=r"'absent': the package lab-words 2.1 cannot be imported: AttributeError"):
        words().find("absent")
    with pytest.raises(ConfigError, match="'number': expected lab_words:NUMBER to be a str of that name, found 3"):
        words().find("number")


def test_a_name_of_ours_is_not_replaced(install: Install) -> None:
    install("short = lab_words:LONG")
    with pytest.raises(ConfigError, match="word 'short' is there twice: of Earmark and of the installed package lab-w"):
        words().find("any")


WORDS = words()


class Named(Model):
    """Names a word, and words with more behind a colon."""

    word: Annotated[str, OneOf(f"{__name__}:WORDS")] = Field(default="short", description="A word.")


class Spec(Model):
    """Names a word with more behind a colon."""

    spec: Annotated[str, OneOf(f"{__name__}:WORDS", "word:more")]
    inner: tuple[Named, ...] = ()


@pytest.fixture
def lab(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("long = lab_words:LONG")
    monkeypatch.setitem(globals(), "WORDS", words())
    monkeypatch.setattr(OneOf, "registry", property(lambda _: WORDS))


@pytest.mark.usefixtures("lab")
def test_a_config_names_what_is_there(tmp_path: Path) -> None:
    config = checked(Spec, {"spec": "long:4", "inner": [{"word": "any"}]}, tmp_path / "c.toml")
    assert {entry.package for entry in named_in(config)} == {None, ("lab-words", "2.1")}
    for values, line in (
        ({"spec": "x:1"}, "spec: expected word:more with a word of short, any, long, found 'x:1'"),
        ({"spec": "long"}, "spec: expected word:more with a word of short, any, long, found 'long'"),
        ({"spec": "any: "}, "spec: expected word:more with a word of short, any, long, found 'any: '"),
        (
            {"spec": "any:1", "inner": [{"word": "lng"}]},
            r"inner\[0\].word: expected one of short, any, long, found 'lng'",
        ),
    ):
        with pytest.raises(ConfigError, match=line):
            checked(Spec, values, tmp_path / "c.toml")


@pytest.mark.usefixtures("lab")
def test_the_json_schema_names_them() -> None:
    assert TypeAdapter(Named).json_schema()["properties"]["word"]["enum"] == ["short", "any", "long"]
    assert TypeAdapter(Spec).json_schema()["properties"]["spec"]["pattern"] == "^(short|any|long):"
