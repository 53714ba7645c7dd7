"""A ninth corpus comes with another package: one folder and one entry point, and nothing here knows of it."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from earmark import plugins
from earmark.schemas import reasons
from tests.conftest import ROOT

PACKAGE = Path(__file__).with_name("plugin") / "earmark_tempos"
NOTES = "id,text,bpm\n" + "".join(f"n{i},a note {i},{60 + i}\n" for i in range(9)) + "n9,,70\nn10,a rush,900\n"


ADDS = {
    "corpora": {"tempos": "earmark_tempos.corpus:CORPUS"},
    "importers": {"ratings.tempo-scores": "earmark_tempos.ratings:LAYOUT"},
    "evaluations": {"tempo": "earmark_tempos.kinds:TEMPO"},
    "exports": {"ids": "earmark_tempos.exports:IDS"},
    "backends": {"tempos": "earmark_tempos.backend:BACKEND"},
    "builtins": {"steady-1": "earmark_tempos.backend:steady"},
}
SCORES = "".join(f"c{i}.wav,s{i % 3},{1 + i % 5}\n" for i in range(20))
TEMPOS = 'corpus = "tempos"\nnotes = "notes.csv"\n[judge]\nmodel = "tempos:steady"\n'
RATED = """corpus = "mos-preferences"
[[sources]]
name = "lab"
format = "tempo-scores"
root = "lab"
"""


def install(site: Path, version: str = "1.0", **adds: dict[str, str]) -> None:
    """What `pip install` leaves of the package."""
    shutil.copytree(PACKAGE, site / "earmark_tempos", dirs_exist_ok=True)
    for old in site.glob("*.dist-info"):
        shutil.rmtree(old)
    facts = site / f"earmark_tempos-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: earmark-tempos\nVersion: {version}\n")
    (facts / "entry_points.txt").write_text(
        "".join(
            f"[earmark.{group}]\n" + "".join(f"{name} = {reference}\n" for name, reference in points.items())
            for group, points in {**ADDS, **adds}.items()
        )
    )


class House:
    """A store, and an environment in which the package is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        install(self.site)
        (folder / "notes.csv").write_text(NOTES)
        (folder / "lab").mkdir()
        (folder / "lab/scores.txt").write_text(SCORES)
        (folder / "mos-preferences.toml").write_text(RATED)
        demo = (ROOT / "data/demo/pseudo-preferences.toml").read_text()
        judged = demo.replace("builtin:music-pair-2", "tempos:steady").replace('"music/', f'"{ROOT}/data/demo/music/')
        (folder / "pseudo-preferences.toml").write_text(judged)
        (folder / "tempos.toml").write_text(TEMPOS)

    def run(self, *words: object, code: int = 0) -> str:
        """What the command prints, on both streams."""
        return self.python("-m", "earmark", *words, code=code)

    def python(self, *words: object, code: int = 0) -> str:
        """What Python prints, on both streams."""
        paths = os.pathsep.join([str(self.site), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, "EARMARK_STORE": str(self.folder / "store")}
        ended = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def build(self, corpus: str = "tempos", code: int = 0) -> str:
        """Build a corpus."""
        return self.run("build", corpus, "--config", f"{corpus}.toml", code=code)

    def manifest(self, version: str) -> dict[str, Any]:
        """What `corpus/vN` says of itself."""
        manifest: dict[str, Any] = json.loads((self.folder / "store" / version / "manifest.json").read_text())
        return manifest


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_is_one_line_for_those_who_use_it(house: House) -> None:
    install(house.site, corpora={"tempos": "earmark_tempos.nowhere:CORPUS"})
    line = "corpus 'tempos': the package earmark-tempos 1.0 cannot be imported: ModuleNotFoundError"
    listed = house.run("list")
    assert line in listed
    assert "mos-preferences" in listed
    told = house.run("build", "tempos", "--config", "tempos.toml", code=1)
    assert line in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_name_that_is_taken_is_refused(house: House) -> None:
    install(house.site, corpora={"captions": "a:b"})
    told = house.run("list", code=1)
    assert "corpus 'captions' is there twice: of Earmark and of the installed package earmark-tempos" in told
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_is_built_explained_exported_judged_and_compared(house: House) -> None:
    assert "tempos" in house.run("list")
    assert "9 notes" in house.run("build", "tempos", "--config", "tempos.toml", "--dry-run")
    house.build()
    version = house.folder / "store/tempos/v1"
    assert pq.read_table(version / "notes")["pace"].to_pylist() == ["fast"] * 9
    manifest = house.manifest("tempos/v1")
    assert manifest["libraries"]["earmark-tempos"] == "1.0"
    assert manifest["rejects"] == {"missing_value": 1, "too_fast": 1}
    assert [(step["name"], step["entered"], step["kept"]) for step in manifest["steps"]] == [
        ("read", 11, 9), ("pace", 9, 9), ("write", 9, 9)
    ]  # fmt: skip
    assert "already up to date: v1" in house.build()
    assert "n3" in house.run("inspect", "explain", "tempos", "n3")
    assert "too_fast" in house.run("inspect", "explain", "tempos", "n10")
    house.run("export", "tempos", "--for", "jsonl", "--view", "notes", "--out", "out")
    assert len((house.folder / "out/train.jsonl").read_text().splitlines()) == 9
    (house.folder / "scores.csv").write_text("id,score\n" + "".join(f"n{i},{100 + 2 * i}\n" for i in range(9)))
    assert "1.000" in house.run(
        "eval", "run", "tempos", "--evaluation", "bpm", "--split", "train", "--scores", "scores.csv"
    )
    of_tempo = ("tempos", "--evaluation", "tempo", "--split", "train")
    house.run("eval", "template", *of_tempo, "--out", "tempi.csv")
    empty = (house.folder / "tempi.csv").read_text()
    assert empty.startswith("id,score\nn0,")
    guesses = "".join(f"n{i},{(60 + i) * (1 + i % 2)}\n" for i in range(9))  # every second is twice as fast
    (house.folder / "tempi.csv").write_text(f"id,score\n{guesses}")
    ran = house.run("eval", "run", *of_tempo, "--scores", "tempi.csv")
    assert "accuracy_octave" in ran
    assert "0.556" in ran
    assert "0.556" in house.run("eval", "tables", *of_tempo, "--models", "ours=tempi.csv", "--by", "split")

    sql = house.site / "earmark_tempos/notes.sql"
    sql.write_text(sql.read_text().replace("-- Grain: a row a note.", "-- Grain: one row a note."))
    assert "already up to date: v1" in house.build(), "a comment of its SQL made it stale"
    steps = house.site / "earmark_tempos/steps.py"
    steps.write_text(steps.read_text().replace("SLOWEST_BPM, FASTEST_BPM = 20.0", "SLOWEST_BPM, FASTEST_BPM = 65.0"))
    assert "already up to date" not in house.build(), "a rule of the package did not make it stale"
    assert pq.read_table(house.folder / "store/tempos/v2/notes").num_rows == 4
    assert "n0" in house.run("inspect", "diff", "tempos@v1", "tempos@v2", "--rows")
    install(house.site, version="1.1")
    assert "up to date" not in house.build(), "another release of the package stands in the key"
    assert "files are as committed" in house.run("inspect", "verify", "tempos")


@pytest.mark.slow
def test_it_has_a_demo_and_init_writes_its_config(house: House) -> None:
    said = house.run("init", "tempos", "--from", "notes.csv", "--out", "guessed.toml")
    assert "looked at 11 rows: 9 are in the layout notes" in said
    guessed = tomllib.loads((house.folder / "guessed.toml").read_text())
    assert guessed == {"corpus": "tempos", "notes": "notes.csv", "judge": {"model": "tempos:steady"}}
    code = "from earmark.flows.command.running import demo_configs; print(demo_configs()['tempos'])"
    demo = house.python("-c", code).strip()
    assert demo == str(house.site / "earmark_tempos/demo/tempos.toml")
    house.run("build", "tempos", "--config", demo)
    assert pq.read_table(house.folder / "store/tempos/v1/notes").num_rows == 2


def test_a_reason_has_one_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "REASONS", {**reasons.REASONS})
    plugins.add_reasons({"of_a_lab": plugins.Reason("rule", ())})
    plugins.add_reasons({"of_a_lab": plugins.Reason("rule", ())})
    reasons.check_reasons(["of_a_lab"])
    for word in ("of_a_lab", "tie", "missing_text"):
        with pytest.raises(LookupError, match=f"'{word}' is declared already"):
            plugins.add_reasons({word: plugins.Reason("fault", ())})


@pytest.mark.slow
def test_its_layout_is_read_by_a_corpus_of_ours_and_its_format_exports_it(house: House) -> None:
    house.build("mos-preferences")
    manifest = house.manifest("mos-preferences/v1")
    assert manifest["libraries"]["earmark-tempos"] == "1.0"
    assert pq.read_table(house.folder / "store/mos-preferences/v1/ratings").num_rows == 20
    assert "already up to date: v1" in house.build("mos-preferences")
    words = ("export", "mos-preferences", "--view", "preferred-clips")
    assert "who wants names" in house.run(*words[:2])
    house.run(*words, "--for", "ids", "--split", "train", "--out", "out")
    pairs = pq.read_table(house.folder / "store/mos-preferences/v1/pairs")
    assert len((house.folder / "out/train.txt").read_text().split()) == pairs.num_rows > 0
    layout = house.site / "earmark_tempos/ratings.py"
    layout.write_text(layout.read_text().replace("LOWEST = 0.0", "LOWEST = 2.0"))
    assert "already up to date" not in house.build("mos-preferences"), "a rule of the layout did not make it stale"
    install(house.site, exports={"ids": "earmark_tempos.nowhere:IDS"})
    line = "export format 'ids': the package earmark-tempos 1.0 cannot be imported: ModuleNotFoundError"
    assert line in " ".join(house.run(*words[:2]).split())
    assert line in house.run(*words, "--for", "ids", "--out", "out2", code=1)
    install(house.site, importers={"ratings.tempo-scores": "earmark_tempos.nowhere:LAYOUT"})
    line = "layout of ratings 'tempo-scores': the package earmark-tempos 1.0 cannot be imported: ModuleNotFoundError"
    assert line in house.build("mos-preferences", code=1)
    install(house.site, importers={})
    line = "format: expected one of bvcc, nisqa, singmos, somos, table, tmhint-qi, vmc23, found 'tempo-scores'"
    assert line in house.build("mos-preferences", code=1)


@pytest.mark.slow
def test_its_backend_judges_for_a_corpus_of_ours(house: House) -> None:
    house.build("pseudo-preferences")
    manifest = house.manifest("pseudo-preferences/v1")
    assert manifest["libraries"]["earmark-tempos"] == "1.0"
    assert manifest["models"] == ["tempos:steady"]
    labels = pq.read_table(house.folder / "store/pseudo-preferences/v1/labels")
    assert set(labels["musicality"].to_pylist()) == {"tie"}
    assert "already up to date: v1" in house.build("pseudo-preferences")
    install(house.site, backends={"tempos": "earmark_tempos.nowhere:BACKEND"})
    line = "annotation backend 'tempos': the package earmark-tempos 1.0 cannot be imported: ModuleNotFoundError"
    assert line in house.build("pseudo-preferences", code=1)
    config = house.folder / "pseudo-preferences.toml"
    config.write_text(config.read_text().replace("tempos:steady", "builtin:steady-1"))
    house.build("pseudo-preferences")
    manifest = house.manifest("pseudo-preferences/v2")
    assert (manifest["models"], manifest["libraries"]["earmark-tempos"]) == (["builtin:steady-1"], "1.0")
    install(house.site, builtins={"steady-1": "earmark_tempos.nowhere:steady"})
    line = "builtin function 'steady-1': the package earmark-tempos 1.0 cannot be imported: ModuleNotFoundError"
    assert line in house.build("pseudo-preferences", code=1)
    config.write_text(config.read_text().replace("builtin:steady-1", "tempos:steady"))
    install(house.site, backends={})
    known = "builtin, gemini, litellm, openai, scorer, transformers, vllm"
    line = f"judge.model: expected backend:model with a backend of {known}, found 'tempos:steady'"
    assert line in house.build("pseudo-preferences", code=1)


def test_one_module_holds_what_plug_ins_import() -> None:
    source = Path(plugins.__file__).read_text("utf-8")
    declared = {
        name: module for module, name in re.findall(r"^    from (\S+) import \w+ as (\w+)$", source, re.MULTILINE)
    }
    assert declared.keys() == set(plugins.__all__)
    for name, module in declared.items():
        assert getattr(plugins, name) is getattr(importlib.import_module(module), name), name
    with pytest.raises(AttributeError, match=r"'earmark\.plugins'"):
        _ = plugins.nothing


def test_the_former_place_of_names_tells_the_new_one() -> None:
    with pytest.raises(ImportError, match=r"is earmark\.tasks\.pipeline now; .* from earmark\.plugins$"):
        importlib.import_module("earmark.tasks.build.step")
