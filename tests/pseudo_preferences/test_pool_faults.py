"""Rows of a pool that cannot be used are rejects with their place; tables that cannot be read end in one line."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from earmark.schemas.errors import EarmarkError
from earmark.tasks.store.versions import verify
from tests.builds import rows_of
from tests.pseudo_preferences.music import (
    RATE_HZ,
    Row,
    build_judged,
    config_of,
    make_pool,
    write_clip,
    write_rows,
)
from tests.pseudo_preferences.test_music_pairs import NOWHERE, pairs_of, rejects_of, server, to_json
from tests.servers.openai_server import OpenAIServer

__all__ = ["server"]  # a fixture


def bad_generations(folder: Path) -> list[tuple[Row, str]]:
    """Rows that cannot be used, each with its reason."""

    def row(name: str, audio: Any = None, **values: Any) -> Row:
        path = f"clips/{name}.wav"
        if audio is None:
            write_clip(folder / path, 500 + len(name) * 1000 + sum(name.encode()))
        return {"generation_id": name, "prompt_id": "p000", "model": "eel", "audio": path, **values} | (
            {} if audio is None else {"audio": audio}
        )

    (folder / "clips/zero.wav").write_bytes(b"")
    (folder / "clips/text.wav").write_text("not audio at all")
    (folder / "clips/folder.wav").mkdir()
    soundfile.write(folder / "clips/empty.wav", np.zeros(0), RATE_HZ)
    soundfile.write(folder / "clips/silent.wav", np.zeros(RATE_HZ), RATE_HZ)
    write_clip(folder / "clips/quiet.wav", 5, gain=0.0005)
    write_clip(folder / "clips/short.wav", 6, seconds=0.05)
    write_clip(folder / "clips/cut.flac", 7)
    content = (folder / "clips/cut.flac").read_bytes()
    (folder / "clips/cut.flac").write_bytes(content[: len(content) // 2])
    shutil.copyfile(folder / "clips/p000-ant-1.wav", folder / "clips/again.wav")
    return [
        (row("failed", status="failed"), "generation_failed"),
        (row("odd", status="TIMEOUT <b>"), "generation_failed"),
        (row("number", status=500), "generation_failed"),
        (row("no audio", audio=""), "missing_value"),
        (row("null audio", audio=None) | {"audio": None}, "missing_value"),
        (row("gone", audio="clips/gone.wav"), "file_missing"),
        (row("zero", audio="clips/zero.wav"), "file_empty"),
        (row("text", audio="clips/text.wav"), "file_unreadable"),
        (row("folder", audio="clips/folder.wav"), "file_unreadable"),
        (row("cut", audio="clips/cut.flac"), "file_corrupt"),
        (row("empty", audio="clips/empty.wav"), "file_empty"),
        (row("silent", audio="clips/silent.wav"), "audio_silent"),
        (row("quiet", audio="clips/quiet.wav"), "audio_silent"),
        (row("short", audio="clips/short.wav"), "audio_too_short"),
        (row("again", audio="clips/again.wav"), "duplicate_audio"),
        (row("p001-ant-1"), "duplicate_id"),
        (row("lost", prompt_id="p999"), "unknown_prompt"),
        (row("of a bad prompt", prompt_id="wordless"), "unknown_prompt"),
        (row("promptless", prompt_id=""), "missing_value"),
        (row("modelless", model=None), "missing_value"),
        (row("modelled", model=["a", "b"]), "bad_value"),
        (row("climbs", audio="../../etc/passwd"), "path_outside_root"),
        (row("absolute", audio="/etc/passwd"), "path_outside_root"),
        (row("other mark", audio="clips\\p000-ant-1.wav"), "path_outside_root"),
        (row("nul", audio="clips/\0.wav"), "bad_value"),
        (row("surrogate", audio="clips/\ud800.wav"), "bad_value"),
        (row("long", audio="clips/" + "x" * 300 + ".wav"), "file_unreadable"),
        (row("x" * 1100, audio="clips/gone.wav"), "bad_value"),
        (row("control\x07", audio="clips/gone.wav"), "bad_value"),
    ]


def bad_prompts(folder: Path) -> list[tuple[Row, str]]:
    """Prompts that cannot be used, each with its reason."""
    soundfile.write(folder / "references/empty.wav", np.zeros(0), RATE_HZ)
    return [
        ({"prompt_id": "wordless", "text": "  "}, "missing_value"),
        ({"prompt_id": "null"}, "missing_value"),
        ({"prompt_id": "number", "text": 5}, "bad_value"),
        ({"prompt_id": "object", "text": {"a": 1}}, "bad_value"),
        ({"prompt_id": "listed", "text": "t", "lyrics": ["la"]}, "bad_value"),
        ({"prompt_id": "endless", "text": "x" * 20_001}, "bad_value"),
        ({"prompt_id": "broken", "text": "a \ud800 b"}, "bad_value"),
        ({"prompt_id": "broken lyrics", "text": "a", "lyrics": "\udfff"}, "bad_value"),
        ({"prompt_id": "p000", "text": "again"}, "duplicate_id"),
        ({"prompt_id": "", "text": "t"}, "missing_value"),
        ({"prompt_id": "gone", "text": "t", "reference_audio": "references/gone.wav"}, "file_missing"),
        ({"prompt_id": "empty", "text": "t", "reference_audio": "references/empty.wav"}, "file_empty"),
        ({"prompt_id": "climbs", "text": "t", "reference_audio": "a/../../b.wav"}, "path_outside_root"),
        ({"prompt_id": "typed", "text": "t", "reference_audio": {"path": "x"}}, "bad_value"),
    ]


@pytest.mark.slow
def test_every_bad_row_is_a_reject_with_its_place(tmp_path: Path, server: OpenAIServer) -> None:
    asked, made = make_pool(tmp_path, 3)
    generations, prompts = bad_generations(tmp_path), bad_prompts(tmp_path)
    assert len(generations) + len(prompts) >= 25
    tail = b'{"torn": \n[1, 2]\n"text"\n{"prompt_id": "a", "prompt_id": "b"}\n\xff\xfe\n'
    (tmp_path / "prompts.jsonl").write_bytes(to_json(asked + [row for row, _ in prompts]) + tail)
    (tmp_path / "generations.jsonl").write_bytes(to_json(made + [row for row, _ in generations]))
    version = build_judged(config_of(tmp_path, server.base_url), tmp_path / "store")
    assert verify(version) == []
    found = {(row["file"], row["line"]): row for row in rows_of(version, "rejects") if row["stage"] != "labels"}
    expected = {("generations.jsonl", len(made) + n): reason for n, (_, reason) in enumerate(generations, 1)}
    expected |= {("prompts.jsonl", len(asked) + n): reason for n, (_, reason) in enumerate(prompts, 1)}
    last = len(asked) + len(prompts)
    reasons = ("bad_line", "bad_line", "bad_line", "bad_line", "bad_encoding")
    expected |= {("prompts.jsonl", last + n): reason for n, reason in enumerate(reasons, 1)}
    assert {place: row["reason"] for place, row in found.items()} == expected
    assert all(
        row["detail"] and "\n" not in row["detail"] and str(tmp_path) not in row["detail"] for row in found.values()
    )
    assert len(rows_of(version, "clips")) == len(made)
    assert server.faults.numbers()["asked"] == 2 * len(rows_of(version, "pairs")) == 2 * 9


def test_a_duplicate_of_a_row_that_cannot_be_used_takes_its_place(tmp_path: Path) -> None:
    _, made = make_pool(tmp_path, 2)
    lost = {**made[0], "generation_id": "first", "prompt_id": "p999"}
    write_rows(tmp_path / "generations.jsonl", [lost, *made])
    assert [row["reason"] for row in rejects_of(tmp_path)] == ["unknown_prompt"]


def as_table(kind: str, rows: list[Row], columns: list[str]) -> bytes:
    if kind == "jsonl":
        return to_json(rows)
    if kind == "parquet":
        out = io.BytesIO()
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in columns}), out)
        return out.getvalue()
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, delimiter="\t" if kind == "tsv" else ",", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return b"\xef\xbb\xbf" + text.getvalue().encode()


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_other_kinds_of_tables_hold_the_same_pool(tmp_path: Path, kind: str) -> None:
    asked, made = make_pool(tmp_path, 6)
    expected = pairs_of(tmp_path)
    prompts = as_table(kind, asked, ["prompt_id", "text", "lyrics", "reference_audio"])
    (tmp_path / f"p.{kind}").write_bytes(prompts)
    generations = as_table(kind, made, ["status", "audio", "model", "prompt_id", "generation_id"])
    (tmp_path / f"g.{kind}").write_bytes(generations)
    assert pairs_of(tmp_path, prompts=f"p.{kind}", generations=f"g.{kind}") == expected


@pytest.mark.parametrize("mark", [",", "\t"])
def test_ragged_rows_of_text_tables(tmp_path: Path, mark: str) -> None:
    _, made = make_pool(tmp_path, 2)
    rows = [mark.join((row["generation_id"], row["prompt_id"], row["model"], row["audio"])) for row in made]
    ending = "csv" if mark == "," else "tsv"
    header = mark.join(("generation_id", "prompt_id", "model", "audio"))
    text = "\n".join([header, *rows, mark.join(("x", "p000", "ant")), rows[0] + mark + "y", '"open'])
    (tmp_path / f"g.{ending}").write_text(text)
    found = rejects_of(tmp_path, generations=f"g.{ending}")
    lines = [(row["reason"], row["line"] - len(rows)) for row in found]
    assert lines == [("bad_line", 2), ("bad_line", 3), ("bad_line", 4)]


def no_column(folder: Path) -> None:
    write_rows(folder / "generations.jsonl", [{"generation_id": "x", "prompt_id": "p000", "audio": "a.wav"}])


def not_parquet(folder: Path) -> None:
    (folder / "g.parquet").write_bytes(b"PAR1 and no more")


def a_folder(folder: Path) -> None:
    (folder / "g.csv").mkdir()


def empty_file(folder: Path) -> None:
    (folder / "g.csv").write_bytes(b"")


def utf_16(folder: Path) -> None:
    (folder / "g.csv").write_bytes("generation_id,prompt_id,model,audio\n".encode("utf-16") + b"a")


def no_rows(folder: Path) -> None:
    (folder / "generations.jsonl").write_bytes(b"")


def nothing(folder: Path) -> None:
    """No file."""


FILES: list[tuple[Callable[[Path], None], dict[str, Any], str]] = [
    (no_column, {}, "model"),
    (not_parquet, {"generations": "g.parquet"}, "expected a Parquet file"),
    (a_folder, {"generations": "g.csv"}, "folder"),
    (empty_file, {"generations": "g.csv"}, "empty"),
    (utf_16, {"generations": "g.csv"}, "expected UTF-16-LE"),
    (no_rows, {}, "empty"),
    (nothing, {"prompts": "gone.jsonl"}, "gone.jsonl"),
    (nothing, {"prompts": "a\0.jsonl"}, ""),
    (nothing, {"prompts": "x" * 300 + ".jsonl"}, ""),
    (nothing, {"generations": "g.xlsx"}, "g.xlsx"),
    (nothing, {"generations": ""}, ""),
    (nothing, {"known_order": "gone.json"}, "gone.json"),
    (nothing, {"shares": {"train": 0.5}}, "add up to 1"),
    (nothing, {"pairs": {"count": 0}}, "pairs.count"),
    (nothing, {"pairs": {"modalities": {"video": 1.0}}}, "modalities"),
    (nothing, {"pairs": {"modalities": {"text": float("inf")}}}, "modalities"),
    (nothing, {"judge": {"dimensions": ["musicality"]}}, "require"),
    (nothing, {"judge": {"dimensions": []}}, "dimensions"),
    (nothing, {"judge": {"annotator": "nobody:x"}}, "models.x.annotator"),
    (nothing, {"judge": {"annotator": "openai:new", "budget_usd": 1.0, "base_url": None}}, "prices"),
]


@pytest.mark.parametrize(("make", "values", "says"), FILES, ids=lambda value: getattr(value, "__name__", None))
def test_what_cannot_be_built_is_one_line(
    tmp_path: Path, make: Callable[[Path], None], values: dict[str, Any], says: str
) -> None:
    make_pool(tmp_path, 1)
    make(tmp_path)
    with pytest.raises(EarmarkError) as caught:
        build_judged(config_of(tmp_path, NOWHERE, **values), tmp_path / "store")
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not list((tmp_path / "store").glob("*/v*"))


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_pool_without_pairs_is_an_empty_version(tmp_path: Path, status: str) -> None:
    _, made = make_pool(tmp_path, 2, ("ant",))
    write_rows(tmp_path / "generations.jsonl", [row | {"status": status} for row in made])
    version = build_judged(config_of(tmp_path, NOWHERE), tmp_path / "store")
    assert verify(version) == []
    assert rows_of(version, "labels") == rows_of(version, "pairs") == rows_of(version, "bias") == []
    assert len(rows_of(version, "clips")) == 2 * (status == "ok")
