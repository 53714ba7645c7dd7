"""What a dry run shows before a build: it is what the build then does, and neither store nor ledger changes by it."""

from __future__ import annotations

import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from earmark.flows.captions import build as build_captions
from earmark.flows.command.cli import app
from earmark.flows.command.previewing import preview_lines
from earmark.flows.command.running import demo_config, forecast_build
from earmark.schemas.captions import CORPUS as CAPTIONS
from earmark.schemas.captions import Captions
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline.media import SAMPLE, embeddings_of, scratch_store
from earmark.tasks.store.versions import Store
from tests.builds import build_version, contents_of, forecast, read_config, rows_of
from tests.runner import run_flow

CONFIG = """corpus = "mos-preferences"
[[sources]]
name = "study"
format = "table"
files = {{ train = "list.csv" }}
columns = {{ file = "wav", mos = "score", system = "system", content = "text", listener = "who" }}
{more}
"""


def config(folder: Path, more: str = "") -> Path:
    """A config of a list of 4 systems and 10 texts, each clip rated by three."""
    rng = np.random.default_rng(3)
    rows = [
        (f"s{system}_t{text}.wav", int(rng.integers(1, 6)), f"s{system}", f"t{text}", f"p{who}")
        for system in range(4)
        for text in range(10)
        for who in range(3)
    ]
    pd.DataFrame(rows, columns=["wav", "score", "system", "text", "who"]).to_csv(folder / "list.csv", index=False)
    (folder / "my.toml").write_text(CONFIG.format(more=more))
    return folder / "my.toml"


def in_full(facts: Mapping[str, Any]) -> list[str]:
    """The lines of a preview, each of them within 80 columns but for names."""
    lines = list(preview_lines(facts))
    assert [line for line in lines if len(line) > 80 and facts["store"] not in line] == []
    return lines


@pytest.mark.slow
def test_a_build_does_what_its_preview_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    path = config(tmp_path)
    with (tmp_path / "list.csv").open("a") as file:
        file.write("s0_t0.wav,good,s0,t0,p3\ns0_t1.wav,,s0,t1,p3\n")
    facts = forecast_build("mos-preferences", path, store)
    assert not store.root.exists()
    built = build_version(read_config(path), store.root)
    assert facts["would_commit"] == built.name
    assert {name: table["rows"] for name, table in facts["tables"].items()} == {
        name: rows for name, rows in built.manifest.rows.items() if name != "rejects"
    }
    steps = [step.model_dump() for step in built.manifest.steps]
    shown = ("name", "entered", "kept", "rejected", "dropped")
    assert [[step[key] for key in shown] for step in facts["steps"]] == [[step[key] for key in shown] for step in steps]
    frame = pd.DataFrame(rows_of(built, "pairs"))
    by = {f"train {category}": count for category, count in frame["category"].value_counts().items()}
    assert facts["tables"]["pairs"]["by"] == by
    lines = in_full(facts)
    assert "      study/list.csv line 122: expected a score from 1 to 5, found 'good'" in lines
    assert forecast_build("mos-preferences", path, store)["up_to_date"] == "v1"


def test_ratings_are_shown_as_the_list_has_them(tmp_path: Path) -> None:
    lines = in_full(forecast_build("mos-preferences", config(tmp_path), Store(tmp_path / "store")))
    frame = pd.read_csv(tmp_path / "list.csv")
    assert "  120 ratings of 40 clips by 3 listeners; a clip: 3" in lines
    for score, count in frame["score"].value_counts().items():
        assert any(line.split()[:2] == [str(score), str(count)] for line in lines), (score, count)
    clips = frame.groupby(["system", "wav"])["score"].mean()
    systems = clips.groupby("system").mean()
    assert f"  best  system  {systems.max():.2f}  {systems.idxmax()} (10 clips)" in lines
    assert f"  worst system  {systems.min():.2f}  {systems.idxmin()} (10 clips)" in lines
    means = clips.droplevel("system")
    (best,) = (line for line in lines if line.startswith("  best  clip"))
    assert float(best.split()[2]) == pytest.approx(means.max(), abs=0.005)
    assert means[best.split()[3]] == means.max()
    assert sum("is better" in line for line in lines) == 3


@pytest.mark.parametrize(
    ("column", "value", "warning"),
    [
        ("score", lambda row: 100 + row, "all values of score are distinct, as ids and predictions are"),
        ("score", lambda row: 20 + 7 * (row % 3), "score is the same in all rows of a listener, as an age is"),
        ("who", lambda row: f"r{row}", "each row of who names another listener, as a row number does"),
    ],
)
def test_a_column_of_ids_or_ages_is_a_warning(column: str, value: Any, warning: str, tmp_path: Path) -> None:
    path = config(tmp_path, "scale = [0, 300]")
    frame = pd.read_csv(tmp_path / "list.csv")
    frame[column] = [value(row) for row in range(len(frame))]
    frame.to_csv(tmp_path / "list.csv", index=False)
    lines = in_full(forecast_build("mos-preferences", path, Store(tmp_path / "store")))
    assert [line for line in lines if "warning" in line] == [f"  warning: {warning}"]


def test_a_test_of_another_scale_is_a_warning(tmp_path: Path) -> None:
    path = config(tmp_path, "scale = [0, 100]")
    frame = pd.read_csv(tmp_path / "list.csv").assign(test="mos")
    wide = frame.assign(wav="w_" + frame["wav"], score=frame["score"] * 20, test="mushra")
    pd.concat([frame, wide]).to_csv(tmp_path / "list.csv", index=False)
    path.write_text(path.read_text().replace('listener = "who"', 'listener = "who", subset = "test"'))
    lines = in_full(forecast_build("mos-preferences", path, Store(tmp_path / "store")))
    assert "warning: test mos has ratings from 1 to 5, another a far wider range" in " ".join(map(str.strip, lines))


def test_a_list_of_ratings_gives_no_warning(tmp_path: Path) -> None:
    lines = in_full(forecast_build("mos-preferences", config(tmp_path), Store(tmp_path / "store")))
    assert not any("warning" in line for line in lines)


def test_a_build_that_would_stop_is_said_and_ends_with_1(tmp_path: Path) -> None:
    path = config(tmp_path, "[pairs]\nmin_gap = 9")
    words = ["build", "mos-preferences", "-c", str(path), "--dry-run", "--store", str(tmp_path / "store")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 1
    assert "a build would stop and commit nothing" in run.output
    assert "the main table 'pairs' would be empty" in run.output
    assert "would commit v" not in run.output
    assert "To commit it even so: earmark build --allow-rejects" in " ".join(run.output.split())
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_a_dry_run_changes_neither_store_nor_ledger(tmp_path: Path) -> None:
    path = demo_config("mos-preferences")
    store = Store(tmp_path / "store")
    few = {"limit": 40, "most_rejected": None}
    build_version(read_config(path).model_copy(update=few), store.root)
    assert (store.root / "ledger.sqlite").is_file()
    assert (store.root / "media.sqlite").is_file()
    before = contents_of(store.root), sorted(store.root.rglob("*"))
    facts = forecast_build("mos-preferences", path, store, limit=60, allow_rejects=True)
    assert facts["would_commit"] == "v2"
    assert (contents_of(store.root), sorted(store.root.rglob("*"))) == before


@pytest.mark.slow
def test_of_many_new_clips_a_sample_is_measured(tmp_path: Path) -> None:
    path = config(tmp_path)
    path.write_text('audio = "index"\n' + path.read_text())
    frame = pd.read_csv(tmp_path / "list.csv")
    many = pd.concat([frame.assign(wav=f"{number}_" + frame["wav"]) for number in range(3)])
    many.to_csv(tmp_path / "list.csv", index=False)
    for number, name in enumerate(many["wav"].unique()):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((np.arange(800) * (number + 1) % 2000).astype("<i2").tobytes())
    (tmp_path / many["wav"].iloc[0]).unlink()
    store = Store(tmp_path / "store")
    facts = forecast_build("mos-preferences", path, store)
    assert facts["clips"] == {"measured": SAMPLE, "assumed": 119 - SAMPLE, "file_missing": 1}
    assert facts["build_key"] is None
    assert sum(facts["tables"]["ratings"]["rows"].values()) == 119
    assert "clips: 119 found of 120" in in_full(facts)
    build_version(read_config(path), store.root)
    assert forecast_build("mos-preferences", path, store)["up_to_date"] == "v1"


def test_a_dry_run_computes_no_embedding_and_fetches_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earmark.tasks.audio.similarity.Similarity._clap", property(lambda _: pytest.fail("loaded")))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("a model was fetched"))
    (tmp_path / "clap").mkdir()
    store = Store(tmp_path / "store")
    with scratch_store(store) as dry:
        assert embeddings_of(dry, str(tmp_path / "clap"), {"a": tmp_path / "a.wav", "gone": None}) == {}
        assert embeddings_of(dry, "org/clap", {"b": tmp_path / "b.wav"}) == {}
        assert dry.looked.unheard == {"a", "b"}
    assert not store.root.exists()


@pytest.mark.slow
def test_answers_in_the_ledger_count_for_what_follows_from_them(tmp_path: Path) -> None:
    path = demo_config("captions")
    settings = parse_config(Captions, read_toml(path), path)
    story = build_captions.story  # type: ignore[attr-defined]
    before = forecast(CAPTIONS, story, settings, Store(tmp_path))
    assert before is not None
    assert before["from_ledger"] == 0
    run_flow(build_captions, settings, tmp_path)
    after = forecast(CAPTIONS, story, settings, Store(tmp_path))
    assert after is not None
    asks = [after, *(part for part in after.values() if isinstance(part, dict) and "to_ask" in part)]
    assert len(asks) > 2, "refinements follow from what was heard"
    assert [one["to_ask"] for one in asks] == [0] * len(asks)
