"""Exports of votes as they go wrong: each row is one vote or one reject, a whole file one line of error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject
from earmark.tasks.importers import cmi_pref, label_studio, music_arena, rated_music
from earmark.tasks.importers.cells import Scale
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.rated_music import MusicRating
from earmark.tasks.importers.votes import Vote, table_votes
from tests.human_preferences.votes import vote

Read = Callable[[ListFile, str], Iterator[Any]]


def file_of(folder: Path, content: bytes, name: str, kind: str = "jsonl") -> ListFile:
    path = folder / name
    path.write_bytes(content)
    return ListFile(path, f"s/{name}", "", kind)


def lines_of(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read_cmi(folder: Path, *rows: dict[str, Any]) -> list[Any]:
    return list(cmi_pref.read(file_of(folder, lines_of(*rows), "v.jsonl"), str(folder)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"preference-musicality": "", "preference-alignment": ""}, "no_preference"),
        ({"preference-musicality": "model_c"}, "bad_value"),
        ({"confidence_preference-musicality": "3.7"}, "bad_value"),
        ({"confidence_preference-musicality": "5.5"}, "bad_value"),
        ({"confidence_preference-musicality": "nan"}, "bad_value"),
        ({"audio2": ""}, "missing_value"),
        ({"audio2": "0-a.wav"}, "same_clip"),
        ({"audio2": "../x.wav"}, "path_outside_root"),
        ({"prompt": ["a"]}, "bad_value"),
        ({"user id": {"a": 1}}, "bad_value"),
        ({"prompt": "x" * 30_000}, "bad_value"),
        ({"split": "holdout"}, "bad_split"),
        ({"date": "yesterday"}, "bad_value"),
        ({"date": 1e30}, "bad_value"),
    ],
)
def test_faulty_rows_are_rejects(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    found = read_cmi(tmp_path, vote(), {**vote(), **changed})
    assert isinstance(found[0], Vote)
    assert isinstance(found[1], Reject)
    assert (found[1].reason, found[1].source_file, found[1].line) == (reason, "s/v.jsonl", 2)


def test_a_vote_keeps_what_its_row_says(tmp_path: Path) -> None:
    (found,) = read_cmi(
        tmp_path, vote(7, **{"lyrics": "la", "ref-audio-path": "r.wav", "date": "2025-08-31T23:30:00-02:00"})
    )
    assert (found.audio_a, found.audio_b, found.reference) == ("7-a.wav", "7-b.wav", "r.wav")
    assert (found.musicality, found.confidence_musicality) == ("a", 4.0)
    assert (found.alignment, found.confidence_alignment) == ("b", 2.5)
    assert (found.vocals, found.date, found.annotator) == ("vocal", "2025-09-01", "ann")


def test_a_file_in_neither_spelling_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"s/v\.jsonl: expected a column 'audio-path'") as error:
        read_cmi(tmp_path, {"left": "a.wav", "right": "b.wav"})
    assert len(str(error.value).splitlines()) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
QUIET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@pytest.mark.slow
@QUIET
@given(st.lists(st.dictionaries(st.sampled_from([*vote(), "date", "feedback"]), JSON), max_size=4))
def test_whatever_cells_hold_each_row_comes_out_once(tmp_path: Path, changes: list[dict[str, Any]]) -> None:
    found = read_cmi(tmp_path, vote(), *({**vote(), **change} for change in changes))
    assert sum(isinstance(row, Vote | Reject) for row in found) == 1 + len(changes)


BATTLE = {
    "uuid": "u1",
    "prompt_detailed": {"overall_prompt": "a tune", "instrumental": True, "lyrics": None},
    "a_audio_url": "",
    "b_audio_url": "b.wav",
    "a_metadata": {"system_key": {"system_tag": "ant", "variant_tag": "v1"}},
    "b_metadata": {"system_key": "bee"},
    "vote": {
        "preference": "A",
        "a_listen_data": [["PLAY", 1], ["PAUSE", 3.5], ["PLAY", 4], ["STOP", 5]],
        "feedback": "",
    },
    "vote_time": 1754000000,
}
TASK = {
    "id": 3,
    "data": {"prompt": "a tune", "audio_a": "/data/local-files/?d=x%2Fa.wav", "audio_b": "b.wav"},
    "annotations": [
        {
            "id": 9,
            "completed_by": {"id": 4, "email": "ann@mail.example"},
            "created_at": "2025-08-01T09:00:00Z",
            "result": [
                {"from_name": "musicality", "type": "choices", "value": {"choices": ["B"]}},
                {"from_name": "confidence_musicality", "type": "rating", "value": {"rating": 4}},
                {"from_name": "feedback", "type": "textarea", "value": {"text": ["one", "two"]}},
            ],
        }
    ],
}


def documents(folder: Path, content: bytes, read: Read) -> list[Any]:
    return list(read(file_of(folder, content, "d.json", "json"), str(folder)))


def test_a_raw_battle_is_read(tmp_path: Path) -> None:
    (found,) = documents(tmp_path, json.dumps(BATTLE).encode(), music_arena.read_battles)
    assert (found.overall, found.audio_a, found.audio_b, found.model_a, found.model_b) == (
        "a",
        None,
        "b.wav",
        "ant:v1",
        "bee",
    )
    assert (found.vocals, found.listened_a_s, found.listened_b_s, found.date) == (
        "instrumental",
        3.5,
        None,
        "2025-07-31",
    )


def test_battles_of_the_running_service_have_a_person_a_date_and_all_their_words(tmp_path: Path) -> None:
    """Fields as Music Arena's `Battle` and `Vote` write them; a person comes back in another session."""
    vote = {
        "preference": "B",
        "preference_time": 1754000000.5,
        "a_listen_data": [["PLAY", 100.0], *(["TICK", 100.0 + n] for n in range(1, 31)), ["PAUSE", 131.0]],
        "b_listen_data": [["TICK", 130.0], ["PLAY", 131.0], ["TICK", 140.0], ["STOP", 150.0], ["TICK", 160.0]],
        "feedback": "Close.",
        "a_feedback": "Thin drums",
        "b_feedback": None,
    }
    service = {key: value for key, value in BATTLE.items() if key != "vote_time"} | {"prompt_user": {"salted_ip": "p1"}}
    sessions = [{"uuid": f"s{n}", "create_time": 1752800000.0} for n in (1, 2)]
    rows = [
        {**service, "vote": vote, "prompt_session": sessions[0]},
        {**service, "vote": {**vote, "preference_time": None}, "prompt_session": sessions[1]},
    ]
    first, second = documents(tmp_path, json.dumps(rows).encode(), music_arena.read_battles)
    assert (first.annotator, first.date, first.listened_a_s, first.listened_b_s) == ("p1", "2025-07-31", 31.0, 19.0)
    assert first.feedback == "General: Close. | Audio A: Thin drums"
    assert (second.annotator, second.date) == ("p1", "2025-07-18")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"a_metadata": None}, "clip a: no metadata, so nothing was made"),
        ({"b_metadata": {"system_key": "bee", "error": "out of memory"}}, "clip b: an error"),
        ({"b_metadata": {"system_key": "bee", "status": "FAILED"}}, "clip b: status failed"),
    ],
)
def test_failed_generations_are_known(tmp_path: Path, changed: dict[str, Any], fault: str) -> None:
    (found,) = documents(tmp_path, json.dumps([{**BATTLE, **changed}]).encode(), music_arena.read_battles)
    assert found.fault == fault


def test_an_annotation_is_a_vote(tmp_path: Path) -> None:
    (found,) = documents(tmp_path, json.dumps([TASK]).encode(), label_studio.read)
    assert (found.audio_a, found.audio_b, found.musicality, found.confidence_musicality) == (
        "x/a.wav",
        "b.wav",
        "b",
        4.0,
    )
    assert (found.annotator, found.feedback, found.vote_id) == ("4", "one\ntwo", "3-9")


def test_lines_of_an_array_are_those_of_the_file(tmp_path: Path) -> None:
    rows = [{**TASK, "annotations": [{"id": 1, "result": []}]}, 7, TASK]
    text = "[\n" + ",\n\n".join(json.dumps(row) for row in rows) + "\n]\n"
    found = documents(tmp_path, text.encode(), label_studio.read)
    assert [(row.line, getattr(row, "reason", None)) for row in found] == [
        (2, "no_preference"),
        (4, "bad_line"),
        (6, None),
    ]


@pytest.mark.parametrize("read", [music_arena.read_battles, label_studio.read])
@pytest.mark.parametrize(
    "content", [b"nonsense", b'[{"a": 1}', b'[{"a": 1} {"b"', b"\xff\xfe[", b'{"a"', b"[" * 100_000]
)
def test_documents_that_are_none_are_one_line(tmp_path: Path, read: Read, content: bytes) -> None:
    with pytest.raises(InputError, match=r"^s/d\.json: expected") as error:
        documents(tmp_path, content, read)
    assert len(str(error.value).splitlines()) == 1


@QUIET
@given(st.sampled_from(sorted(BATTLE)), JSON, st.sampled_from(["data", "annotations", "id"]), JSON)
def test_whatever_a_document_holds_it_comes_out(tmp_path: Path, key: str, value: Any, part: str, other: Any) -> None:
    found = documents(tmp_path, json.dumps([BATTLE, {**BATTLE, key: value}]).encode(), music_arena.read_battles)
    assert sum(isinstance(row, Vote | Reject) for row in found) == 2
    tasks = documents(tmp_path, json.dumps([TASK, {**TASK, part: other}]).encode(), label_studio.read)
    assert isinstance(tasks[0], Vote)
    assert all(isinstance(row, Vote | Reject | Note) for row in tasks)


@QUIET
@given(st.recursive(JSON, lambda inner: st.fixed_dictionaries({"value": inner, "type": st.just("choices")})))
def test_whatever_an_answer_holds_it_is_a_vote_or_a_reject(tmp_path: Path, answer: Any) -> None:
    annotation = {**TASK["annotations"][0], "result": [answer]}  # type: ignore[index]
    found = documents(tmp_path, json.dumps([{**TASK, "annotations": [annotation]}]).encode(), label_studio.read)
    assert [type(row) for row in found] == [Reject]


def test_a_table_goes_by_the_configs_names(tmp_path: Path) -> None:
    content = b"one,two,who\na.wav,b.wav,left\nc.wav,d.wav,tie\n"
    columns = {"audio_a": "one", "audio_b": "two", "overall": "who"}
    found = list(table_votes(file_of(tmp_path, content, "t.csv", "csv"), columns, str(tmp_path)))
    assert [(row.audio_a, row.overall) for row in found] == [("a.wav", "a"), ("c.wav", "tie")]
    with pytest.raises(InputError, match="expected a column 'which'"):
        list(table_votes(file_of(tmp_path, content, "t.csv", "csv"), {**columns, "overall": "which"}, str(tmp_path)))


def test_musiceval_has_two_sets_of_prompts(tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    rows = (
        "audiomos2025-track1-S002_P044.wav,3.5,2\naudiomos2025-track1-S001_P044.wav,4,5\nS9.wav,3,3\nS002_P1.wav,7,3\n"
    )
    (tmp_path / "sets/dev_mos_list.txt").write_text(rows)
    (tmp_path / "prompt_info.txt").write_text("id\ttext\nP044\tbells, slow\n")
    (tmp_path / "demo_prompt_info.txt").write_text("P044\tdrums\n")
    found = list(rated_music.read_musiceval(rated_music.musiceval_files("me", tmp_path), str(tmp_path), Scale(1, 5)))
    rated = [row for row in found if isinstance(row, MusicRating)]
    assert [(r.system, r.prompt_id, r.text, r.musicality, r.alignment, r.split) for r in rated] == [
        ("S002", "P044", "bells, slow", 3.5, 2.0, "validation"),
        ("S001", "demo-P044", "drums", 4.0, 5.0, "validation"),
    ]
    assert [row.reason for row in found if isinstance(row, Reject)] == ["bad_value", "score_out_of_scale"]


def test_musiceval_without_lists_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"me: expected sets/train_mos_list.txt"):
        rated_music.musiceval_files("me", tmp_path)


@pytest.mark.parametrize(
    ("positive", "written", "chosen"),
    [
        (
            None,
            ["1", "2", "first", "Second", "LEFT", "tie (bothbad)", "same", "x.wav", "B"],
            "a b a b a both_bad tie a b",
        ),
        ("b", ["-3", "3", "0", "+1", "1.0"], "a b tie b b"),
        ("a", ["-3", "3", "2"], "b a a"),
    ],
)
def test_choices_are_read_as_people_write_them(
    positive: str | None, written: list[str], chosen: str, tmp_path: Path
) -> None:
    content = "audio_a,audio_b,overall\n" + "".join(f"x.wav,y.wav,{word}\n" for word in written)
    found = list(table_votes(file_of(tmp_path, content.encode(), "t.csv", "csv"), {}, str(tmp_path), positive))
    assert [row.overall for row in found if isinstance(row, Vote)] == chosen.split()
    if positive == "b":
        assert [row.confidence_overall for row in found if isinstance(row, Vote)] == [5, 5, None, 1, 1]


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        (["1,2,1", "2,1,2"], r"line 3: '2' names the model or clip of a, and says b: write a or b in columns.overall"),
        (["1,2,1.0", "2,1,2.0"], "line 3: '2.0' names"),
        (["B,A,A"], "line 2: 'A' names the model or clip of b, and says a"),
        (["B,A,b"], "line 2: 'b' names"),
        (["1,2,2", "1,2,1", "3,4,4", "A,B,B", "ant,bee,bee"], ["b", "a", "b", "b", "b"]),
        (["ant,ant,ant", "ant,ant,b"], ["bad_value", "b"]),
    ],
)
def test_a_model_called_like_the_other_side_is_refused(
    rows: list[str], chosen: str | list[str], tmp_path: Path
) -> None:
    content = "audio_a,audio_b,model_a,model_b,overall\n" + "".join(f"x.wav,y.wav,{row}\n" for row in rows)
    votes = table_votes(file_of(tmp_path, content.encode(), "t.csv", "csv"), {}, str(tmp_path))
    if isinstance(chosen, str):
        with pytest.raises(InputError, match=chosen):
            list(votes)
    else:
        assert [row.overall if isinstance(row, Vote) else getattr(row, "reason", None) for row in votes] == chosen


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("20250831", "2025-08-31"),
        ("20250831.0", "2025-08-31"),
        ("1756640000", "2025-08-31"),
        ("45900", None),  # Excel's
        ("20251331", None),
        ("202508", None),
        ("-1", None),
    ],
)
def test_a_date_without_marks_is_a_date_and_a_count_of_days_is_none(
    written: str, day: str | None, tmp_path: Path
) -> None:
    content = f"audio_a,audio_b,overall,date\nx.wav,y.wav,a,{written}\n"
    (found,) = table_votes(file_of(tmp_path, content.encode(), "t.csv", "csv"), {}, str(tmp_path))
    assert (found.date if isinstance(found, Vote) else None) == day
    assert isinstance(found, Vote) or getattr(found, "reason", None) == "bad_value"


@pytest.mark.parametrize("written", ["-1", "0", "3", "+1"])
def test_a_sign_needs_to_be_told(written: str, tmp_path: Path) -> None:
    content = f"audio_a,audio_b,overall\nx.wav,y.wav,1\nx.wav,y.wav,{written}\n"
    with pytest.raises(InputError, match=r'line 3: .* need positive = "a" or "b"'):
        list(table_votes(file_of(tmp_path, content.encode(), "t.csv", "csv"), {}, str(tmp_path)))
    found = list(
        table_votes(file_of(tmp_path, (content + "x.wav,y.wav,7\n").encode(), "t.csv", "csv"), {}, str(tmp_path), "a")
    )
    assert [row.reason for row in found if isinstance(row, Reject)] == ["bad_value"]


def test_musiceval_of_the_hub_is_read_without_its_sounds(tmp_path: Path) -> None:
    rows = [
        {"audio": {"bytes": b"RIFF", "path": f"audiomos2025-track1-S00{n}_P00{n}.wav"}, "overall quality": 3.5 + n / 10,
         "textual alignment": 2.0}
        for n in range(1, 4)
    ]  # fmt: skip
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"data/{split}-00000-of-00001.parquet")
    files = rated_music.musiceval_files("me", tmp_path)
    found = [
        row for row in rated_music.read_musiceval(files, str(tmp_path), Scale(1, 5)) if isinstance(row, MusicRating)
    ]
    assert [(row.system, row.musicality, row.alignment, row.split) for row in found[2:4]] == [
        ("S003", 3.8, 2.0, "train"), ("S001", 3.6, 2.0, "validation"),
    ]  # fmt: skip
    assert len(found) == 6


@pytest.mark.parametrize("address", ["http://[::1", "//[x", "http://[fe80::1%25eth0]/a.wav", "/data/upload/../../x"])
def test_an_address_that_is_none_rejects_its_task_alone(tmp_path: Path, address: str) -> None:
    broken = {**TASK, "data": {**TASK["data"], "audio_a": address}}
    found = documents(tmp_path, json.dumps([broken, TASK]).encode(), label_studio.read)
    assert len(found) == 2
    assert found[1] == documents(tmp_path, json.dumps([TASK, TASK]).encode(), label_studio.read)[1]
