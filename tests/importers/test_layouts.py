"""Each published layout, made up and real, gives the rows that its owner means."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from earmark.schemas.errors import InputError
from tests.importers import layouts
from tests.importers.reading import files, read

WRITERS: list[tuple[str, str, Callable[[Path], int]]] = [
    ("bvcc", "means", layouts.bvcc),
    ("bvcc", "ratings", lambda root: layouts.bvcc(root, ratings=True)),
    ("bvcc", "flat", lambda root: layouts.bvcc(root, folder=".")),
    ("nisqa", "all", layouts.nisqa),
    ("nisqa", "per-database", lambda root: layouts.nisqa(root, single=False)),
    ("singmos", "voicemos2024", layouts.singmos),
    ("singmos", "v1", lambda root: layouts.singmos(root, "v1")),
    ("singmos", "json", lambda root: layouts.singmos(root, "json")),
    ("somos", "ratings", layouts.somos),
    ("somos", "means", lambda root: layouts.somos(root, ratings=False)),
    ("tmhint-qi", "lists", layouts.tmhint_qi),
    ("tmhint-qi", "audio", lambda root: layouts.tmhint_qi(root, audio=True)),
    ("vmc23", "tracks", layouts.vmc23),
]


@pytest.mark.parametrize(
    ("format_", "layout", "write"), WRITERS, ids=[f"{name}-{layout}" for name, layout, _ in WRITERS]
)
def test_layout_gives_every_row(tmp_path: Path, format_: str, layout: str, write: Callable[[Path], int]) -> None:
    expected = write(tmp_path / "corpus")
    got = read(tmp_path, format=format_, root="corpus")
    assert len(got.ratings) == expected
    assert [reject.reason for reject in got.rejects] == ["clean_reference"] * (format_ == "vmc23")
    assert all(rating.system_id for rating in got.ratings)
    listed = set(files(tmp_path, format=format_, root="corpus"))
    assert {rating.source_file for rating in got.ratings} <= listed
    assert read(tmp_path, format=format_, root="corpus") == got


@pytest.mark.parametrize("format_", ["bvcc", "nisqa", "singmos", "somos", "tmhint-qi", "vmc23"])
def test_only_the_input_files_are_opened(tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = next(write for name, _, write in WRITERS if name == format_)
    write(tmp_path / "corpus")
    opened: set[Path] = set()
    real_open = os.open

    def watched(path: Path, *args: int) -> int:
        opened.add(path)
        return real_open(path, *args)

    monkeypatch.setattr("os.open", watched)
    read(tmp_path, format=format_, root="corpus")
    monkeypatch.undo()
    assert {f"{format_}/{path.relative_to(tmp_path / 'corpus')}" for path in opened} == set(
        files(tmp_path, format=format_, root="corpus")
    )


def test_bvcc_takes_system_content_and_listener(tmp_path: Path) -> None:
    layouts.bvcc(tmp_path / "corpus", ratings=True)
    first = read(tmp_path, format="bvcc", root="corpus").ratings[1]
    assert first.file == "sys00000-utt0000000.wav"
    assert (first.system_id, first.listener_id, first.split) == ("sys00000", "judge1", "train")
    assert first.content_id is None  # cluster -1
    assert first.audio == "main/DATA/wav/sys00000-utt0000000.wav"
    assert (first.source_file, first.line) == ("bvcc/main/DATA/sets/TRAINSET", 2)


def test_nisqa_takes_condition_database_and_reference(tmp_path: Path) -> None:
    layouts.nisqa(tmp_path / "corpus")
    row = read(tmp_path, format="nisqa", root="corpus").ratings[-1]
    assert (row.split, row.subset, row.system_id, row.condition_id) == ("test", "NISQA_TEST_P501", "3", "3")
    assert (row.content_id, row.votes, row.mos_std) == ("ref_1_4.wav", 8, 0.45)
    assert row.file == "NISQA_TEST_P501/deg/c00003_1_4.wav"
    assert row.audio == f"NISQA_Corpus/{row.file}"


def test_singmos_json_takes_votes_and_lines(tmp_path: Path) -> None:
    layouts.singmos(tmp_path / "corpus", "json")
    rows = read(tmp_path, format="singmos", root="corpus").ratings
    text = (tmp_path / "corpus/info/score.json").read_text().splitlines()
    assert all(f'"{row.file}"' in text[row.line - 1] for row in rows)
    assert (rows[0].system_id, rows[0].split, rows[0].subset) == ("sys0000", "train", "made-up")
    assert (rows[0].votes, rows[0].mos_std, rows[0].audio) == (2, 0.0, "wav/sys0000-utt000.wav")
    assert Counter(row.split for row in rows) == {"train": 40, "validation": 40, "test": 40}


def test_singmos_lists_take_the_system(tmp_path: Path) -> None:
    layouts.singmos(tmp_path / "corpus")
    rows = read(tmp_path, format="singmos", root="corpus").ratings
    assert Counter(row.split for row in rows) == {"train": 40, "validation": 40, "test": 40}
    row = next(row for row in rows if row.split == "train")
    assert (row.file, row.system_id) == ("voicemos2024-track2-sys0000-utt000", "sys0000")
    assert row.audio == "DATA/wav/voicemos2024-track2-sys0000-utt000.wav"


def test_somos_splits_ids_from_the_right(tmp_path: Path) -> None:
    layouts.somos(tmp_path / "corpus")
    row = read(tmp_path, format="somos", root="corpus").ratings[-1]
    assert (row.content_id, row.system_id, row.listener_id) == ("novel-2_2007_10004", "003", "JUDGE2")
    assert (row.split, row.audio) == ("test", "audios/novel-2_2007_10004_003.wav")


def test_tmhint_takes_its_split_from_the_audio(tmp_path: Path) -> None:
    layouts.tmhint_qi(tmp_path / "corpus", audio=True)
    got = read(tmp_path, format="tmhint-qi", root="corpus")
    row = got.ratings[0]
    assert (row.system_id, row.condition_id, row.speaker_id, row.content_id) == (
        "METHOD0",
        "snr-0_white",
        "b0",
        "21_00",
    )
    assert (row.split, row.listener_id) == ("test", "0")
    assert row.audio == "test/METHOD0_snr-0_white_TMHINT_b0_21_00.wav"
    (tmp_path / "corpus/test/METHOD0_snr-0_white_TMHINT_b0_21_00.wav").unlink()
    assert read(tmp_path, format="tmhint-qi", root="corpus").reasons == [("bad_split", line) for line in (2, 3, 4)]


def test_tmhint_without_audio_has_no_split(tmp_path: Path) -> None:
    layouts.tmhint_qi(tmp_path / "corpus")
    got = read(tmp_path, format="tmhint-qi", root="corpus")
    assert {row.split for row in got.ratings} == {None}
    assert any("split is unknown" in note for note in got.notes)


def test_tmhint_names_a_listener_that_is_not_named(tmp_path: Path) -> None:
    row = ",CMGAN,1,-2,babble,4,9.5,CMGAN_snr-2_babble_TMHINT_b2_21_02"
    layouts.write(tmp_path / "corpus/raw_data.csv", [layouts.TMHINT_HEADER, row, row])
    assert [r.listener_id for r in read(tmp_path, format="tmhint-qi", root="corpus").ratings] == ["row-2", "row-3"]


def test_vmc23_takes_names_apart(tmp_path: Path) -> None:
    lines = {
        "track1_answer.txt": "VoiceMOS2023Track1-A-AD_test_0026,4.42",
        "track2_answer.txt": "VoiceMOS2023Track2-B01-SF1-CDF1-30001,3.5",
        "track3_answer.txt": "VoiceMOS2023Track3-CMGAN_snr-2_babble_TMHINT_b2_21_02,1.5",
    }
    for name, line in lines.items():
        layouts.write(tmp_path / "corpus" / name, [line])
    rows = read(tmp_path, format="vmc23", root="corpus").ratings
    made = [(r.subset, r.system_id, r.condition_id, r.speaker_id, r.content_id, r.split) for r in rows]
    assert made == [
        ("track1-AD", "A", None, "AD", "AD_test_0026", "test"),
        ("track2", "B01", None, "SF1-CDF1", "30001", "test"),
        ("track3", "CMGAN", "snr-2_babble", "b2", "21_02", "test"),
    ]


def test_missing_part_is_a_note(tmp_path: Path) -> None:
    layouts.vmc23(tmp_path / "corpus")
    (tmp_path / "corpus/track2_answer.txt").unlink()
    got = read(tmp_path, format="vmc23", root="corpus")
    assert got.notes == ["vmc23: track2_answer.txt is not in corpus; its rows are left out"]


@pytest.mark.parametrize("format_", ["bvcc", "nisqa", "singmos", "somos", "tmhint-qi", "vmc23"])
def test_root_without_lists_is_an_error(tmp_path: Path, format_: str) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(InputError, match=r"expected .*in corpus.*found none"):
        read(tmp_path, format=format_, root="corpus")
    with pytest.raises(InputError, match="expected a folder at root = 'elsewhere', found nothing there"):
        files(tmp_path, format=format_, root="elsewhere")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="found a file"):
        files(tmp_path, format=format_, root="file")


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_table_reads_every_format_alike(tmp_path: Path, ending: str) -> None:
    expected = layouts.table(tmp_path / f"rated.{ending}")
    table = {"format": "table", "files": {"train": f"rated.{ending}"}, "columns": layouts.TABLE_COLUMNS}
    got = read(tmp_path, **table)
    assert (len(got.ratings), got.rejects, got.notes) == (expected, [], [])
    row = got.ratings[-1]
    assert (row.file, row.system_id, row.speaker_id, row.content_id) == ("clips/3/1-4.wav", "sys3", "spk1", "t4")
    assert (row.score, row.votes, row.split) == (layouts.score(3, 1, 4), 7, "train")
    assert files(tmp_path, **table) == [f"table/rated.{ending}"]


def test_table_split_column_wins(tmp_path: Path) -> None:
    layouts.write(tmp_path / "t.csv", ["f,m,s", "a.wav,1,dev", "b.wav,2,test", "c.wav,3,", "d.wav,3,holdout"])
    columns = {"file": "f", "mos": "m", "split": "s"}
    got = read(tmp_path, format="table", files={"train": "t.csv"}, columns=columns)
    assert [row.split for row in got.ratings] == ["validation", "test"]
    assert got.reasons == [("bad_split", 4), ("bad_split", 5)]


def test_table_makes_paths_below_its_root_relative(tmp_path: Path) -> None:
    layouts.write(tmp_path / "lists/t.csv", ["f,m", f"{tmp_path}/lists/a.wav,1", "/elsewhere/b.wav,2"])
    got = read(tmp_path, format="table", root="lists", files={"train": "t.csv"}, columns={"file": "f", "mos": "m"})
    assert [row.file for row in got.ratings] == ["a.wav"]
    assert got.reasons == [("path_outside_root", 3)]


def test_real_bvcc(real: Path) -> None:
    got = read(real, format="bvcc", root="mos/bvcc")
    assert (len(got.ratings), got.rejects) == (1066, [])
    assert {row.split for row in got.ratings} == {"test"}
    assert sum(row.content_id is not None for row in got.ratings) > 1000
    assert len(got.notes) == 2  # train and validation


def test_real_vmc23(real: Path) -> None:
    got = read(real, format="vmc23", root="mos/vmc23")
    assert Counter(row.subset for row in got.ratings) == {"track1-AD": 578, "track1-NEB": 882, "track3": 1960}
    assert {row.speaker_id for row in got.ratings if row.subset == "track1-AD"} == {"AD"}
    assert [reject.reason for reject in got.rejects] == ["clean_reference"] * 255
    assert got.notes == ["vmc23: track2_answer.txt is not in mos/vmc23; its rows are left out"]


def test_real_tcd_voip(real: Path) -> None:
    columns = {"file": "Filename", "mos": "MOS", "condition": "ConditionID"}
    got = read(real, format="table", root="mos/tcd-voip", files={"test": "tcd-voip_answer.csv"}, columns=columns)
    assert (len(got.ratings), got.rejects, got.notes) == (384, [], [])


def test_real_listener_wise_table(real: Path) -> None:
    columns = {"file": "sample_id", "mos": "ovr", "listener": "listener"}
    files = {"test": "track3_listener_wise_answer.csv"}
    got = read(real, format="table", root="mos/vmc24-track3", files=files, columns=columns)
    assert (len(got.ratings), len({row.file for row in got.ratings})) == (1400, 280)


def test_published_folder_is_preferred(tmp_path: Path) -> None:
    layouts.bvcc(tmp_path / "corpus")
    shutil.copytree(tmp_path / "corpus/main/DATA/sets", tmp_path / "corpus/sets")
    assert all("/main/DATA/sets/" in n for n in files(tmp_path, format="bvcc", root="corpus") if "mos_list" in n)
