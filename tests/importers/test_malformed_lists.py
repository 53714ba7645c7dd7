"""Damaged lists of published layouts: each bad line is a reject, each bad document one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import InputError
from tests.importers import layouts
from tests.importers.reading import read

# format, its list, a line, its reject
LISTED: list[tuple[str, str, str, str]] = [
    ("bvcc", "test_mos_list.txt", "nodash.wav,3", "bad_value"),
    ("bvcc", "test_mos_list.txt", "sys1-utt1.wav", "bad_line"),
    ("bvcc", "test_mos_list.txt", "sys1-utt1.wav,3,4", "bad_line"),
    ("bvcc", "test_mos_list.txt", "../sys1-utt1.wav,3", "path_outside_root"),
    ("bvcc", "TESTSET", "sysA,sysB-utt1.wav,3,x,{}_30_judge_F", "conflicting_facts"),
    ("bvcc", "TESTSET", "sysA,sysA-utt1.wav,3,x,{}_30__F", "missing_value"),
    ("bvcc", "TESTSET", "sysA,sysA-utt1.wav,7,x,{}_30_judge_F", "score_out_of_scale"),
    ("singmos", "sets/train.txt", "utt0001,3", "bad_value"),
    ("singmos", "sets/train.txt", "sys1-utt1,", "score_missing"),
    ("vmc23", "track1_answer.txt", "VoiceMOS2023Track2-A-b,3", "bad_value"),
    ("vmc23", "track1_answer.txt", "VoiceMOS2023Track1-A,3", "bad_value"),
    ("vmc23", "track2_answer.txt", "VoiceMOS2023Track2-A-30001,3", "bad_value"),
    ("vmc23", "track3_answer.txt", "VoiceMOS2023Track3-CMGAN_snr-2_babble_b2_21_02,3", "bad_value"),
    ("vmc23", "track3_answer.txt", "VoiceMOS2023Track3-TMHINT_b2_21_02,5", "clean_reference"),
]


@pytest.mark.parametrize(("format_", "name", "line", "reason"), LISTED)
def test_row_of_a_bare_list(tmp_path: Path, format_: str, name: str, line: str, reason: str) -> None:
    layouts.write(tmp_path / "corpus" / name, [line])
    got = read(tmp_path, format=format_, root="corpus")
    assert (got.ratings, got.reasons) == ([], [(reason, 1)])
    assert got.rejects[0].source_file == f"{format_}/{name}"


HEADED: list[tuple[str, str, str, str, str]] = [
    ("tmhint-qi", "raw_data.csv", layouts.TMHINT_HEADER, "1,K,1,2,white,,9,K_snr2_white_TMHINT_b1_1", "score_missing"),
    ("tmhint-qi", "raw_data.csv", layouts.TMHINT_HEADER, "1,K,1,2,white,3,9,K_snr2_white", "bad_value"),
    ("tmhint-qi", "raw_data.csv", layouts.TMHINT_HEADER, "1,K,1,2,white,3,9,", "missing_value"),
    ("somos", "clean/TRAINSET", "systemId,utteranceId,choice,listenerId", "001,s_002.wav,3,J", "conflicting_facts"),
    ("somos", "clean/TRAINSET", "systemId,utteranceId,choice,listenerId", "001,s_001.wav,3,", "missing_value"),
    ("somos", "clean/train_mos_list.txt", "utteranceId,mean", "sentence.wav,3", "bad_value"),
    ("nisqa", "A/A_file.csv", "db,con,filename_deg,mos", "NISQA_OTHER,1,a.wav,3", "bad_split"),
    ("nisqa", "A/A_file.csv", "db,con,filename_deg,mos", "NISQA_TEST_A,,a.wav,3", "missing_value"),
    ("nisqa", "A/A_file.csv", "db,con,filename_deg,mos,votes", "NISQA_TEST_A,1,a.wav,3,x", "bad_value"),
    ("nisqa", "A/A_file.csv", "db,con,filename_deg,mos,filepath_deg", "NISQA_TEST_A,1,a,3,../a", "path_outside_root"),
]


@pytest.mark.parametrize(("format_", "name", "header", "line", "reason"), HEADED)
def test_row_of_a_headed_list(tmp_path: Path, format_: str, name: str, header: str, line: str, reason: str) -> None:
    layouts.write(tmp_path / "corpus" / name, [header, line])
    got = read(tmp_path, format=format_, root="corpus")
    assert (got.ratings, got.reasons) == ([], [(reason, 2)])


def test_header_where_none_is_expected(tmp_path: Path) -> None:
    layouts.write(tmp_path / "corpus/test_mos_list.txt", ["wav,mos", "sys1-utt1.wav,3"])
    got = read(tmp_path, format="bvcc", root="corpus")
    assert [(row.file, row.line) for row in got.ratings] == [("sys1-utt1.wav", 2)]
    assert got.rejects == []
    assert any("line 1 is a header" in note for note in got.notes)


@pytest.mark.parametrize(
    ("format_", "name", "line"),
    [
        ("somos", "TRAINSET", "001,s_001.wav,3,J"),
        ("somos", "train_mos_list.txt", "s_001.wav,3"),
        ("tmhint-qi", "raw_data.csv", "7,K,1,2,white,3,9,K_snr2_white_TMHINT_b1_1"),
    ],
)
def test_no_header_where_one_is_expected(tmp_path: Path, format_: str, name: str, line: str) -> None:
    layouts.write(tmp_path / "corpus" / name, [line, line])
    got = read(tmp_path, format=format_, root="corpus")
    assert ([row.line for row in got.ratings], got.rejects) == ([1, 2], [])
    assert any("a row where a header was expected" in note for note in got.notes)


@pytest.mark.parametrize("name", ["bvcc", "somos"])
def test_empty_list_of_a_layout_is_a_note(tmp_path: Path, name: str) -> None:
    layouts.write(tmp_path / "corpus/test_mos_list.txt", [])
    got = read(tmp_path, format=name, root="corpus")
    assert got.rows == 0
    assert f"{name}/test_mos_list.txt is empty" in got.notes


def test_list_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "corpus/test_mos_list.txt").mkdir(parents=True)
    with pytest.raises(InputError, match=r"bvcc/test_mos_list.txt: expected a list, found a folder"):
        read(tmp_path, format="bvcc", root="corpus")


def test_headed_list_with_another_header(tmp_path: Path) -> None:
    layouts.write(tmp_path / "corpus/A/A_file.csv", ["db,con,filename_deg,MOS"])
    with pytest.raises(InputError, match=r"nisqa/A/A_file.csv: expected a column 'mos', found none"):
        read(tmp_path, format="nisqa", root="corpus")


def test_texts_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    layouts.write(tmp_path / "corpus/test_mos_list.txt", ["sys1-utt1.wav,3"])
    layouts.write(tmp_path / "corpus/transcriptions_clustered.csv", ["wav_name,cluster", "sys1-utt1.wav,7", "odd"])
    got = read(tmp_path, format="bvcc", root="corpus")
    assert got.ratings[0].content_id == "7"
    assert any("1 lines could not be read" in note for note in got.notes)


Entry = dict[str, Any]
ENTRIES: list[tuple[str, Callable[[Entry], Any], str]] = [
    ("no object", lambda entry: 3, "bad_line"),
    ("no score", lambda entry: {**entry, "score": None}, "bad_line"),
    ("no mean", lambda entry: {**entry, "score": {}}, "score_missing"),
    ("scores that are no array", lambda entry: {**entry, "score": {"mos": 3, "scores": 3}}, "bad_line"),
    ("a score that is text", lambda entry: {**entry, "score": {"mos": 3, "scores": ["a"]}}, "score_not_a_number"),
    ("no system", lambda entry: {**entry, "sys_id": ""}, "missing_value"),
    ("audio elsewhere", lambda entry: {**entry, "wav": "/audio/a.wav"}, "path_outside_root"),
]


@pytest.mark.parametrize(("change", "reason"), [row[1:] for row in ENTRIES], ids=[row[0] for row in ENTRIES])
def test_entry_of_singmos(tmp_path: Path, change: Callable[[Entry], Any], reason: str) -> None:
    entry = change({"sys_id": "s", "wav": "wav/a.wav", "score": {"mos": 3, "scores": [3, 3]}})
    layouts.write(tmp_path / "corpus/info/score.json", [json.dumps({"utterance": {"a": entry}}, indent=1)])
    assert read(tmp_path, format="singmos", root="corpus").reasons == [(reason, 3)]


@pytest.mark.parametrize(
    ("splits", "reason"),
    [
        ({}, "bad_split"),
        ({"d": {"holdout": ["a"]}}, "bad_split"),
        ({"d": {"train": ["a"]}, "e": {"test": ["a"]}}, "conflicting_split"),
        ({"d": {"train": ["a"], "test": ["a"]}}, "conflicting_split"),
    ],
)
def test_splits_of_singmos(tmp_path: Path, splits: Any, reason: str) -> None:
    entry = {"sys_id": "s", "score": {"mos": 3}}
    layouts.write(tmp_path / "corpus/info/score.json", [json.dumps({"utterance": {"a": entry}})])
    layouts.write(tmp_path / "corpus/info/split.json", [json.dumps(splits)])
    assert read(tmp_path, format="singmos", root="corpus").reasons == [(reason, 1)]


@pytest.mark.parametrize(
    ("scores", "splits", "message"),
    [
        (b"{", b"{}", "score.json: expected a JSON object"),
        (b"[]", b"{}", "score.json: expected a JSON object"),
        (b"{}", b"{}", "score.json: expected an object under the key 'utterance'"),
        (b'{"utterance": {"a": 1, "a": 2}}', b"{}", "score.json: expected a JSON object, found: the key 'a' twice"),
        (b'{"utterance": {}}', b'{"d": []}', "split.json: expected arrays of clips by split under 'd'"),
        (b'\xff{"utterance": {}}', b"{}", "score.json: expected UTF-8 text, found byte 0xff"),
    ],
)
def test_documents_of_singmos(tmp_path: Path, scores: bytes, splits: bytes, message: str) -> None:
    (tmp_path / "corpus/info").mkdir(parents=True)
    (tmp_path / "corpus/info/score.json").write_bytes(scores)
    (tmp_path / "corpus/info/split.json").write_bytes(splits)
    with pytest.raises(InputError, match=message):
        read(tmp_path, format="singmos", root="corpus")
