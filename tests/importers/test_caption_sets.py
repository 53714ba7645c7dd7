"""Caption sets in their published layouts: which clip, which words, and what is refused with its line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject
from earmark.tasks.importers.caption_sets import CAPTION_LAYOUTS, Instruction, read_caption_set, video_of

ROOT = Path("/audio")

SETS = {
    "audiocaps": ("a.csv", "audiocap_id,youtube_id,start_time,caption\n91139,r1nicOVtvkQ,130,A woman talks\n",
                  ("91139", "r1nicOVtvkQ_130.wav", "A woman talks", "youtube:r1nicOVtvkQ")),
    "musiccaps": ("m.csv", "ytid,start_s,end_s,audioset_positive_labels,aspect_list,caption,author_id\n"
                  "-0Gj8-vB1q4,30,40,\"/m/0,/m/1\",\"['ballad', 'sad']\",\"A sad, slow ballad.\",4\n",
                  ("-0Gj8-vB1q4", "-0Gj8-vB1q4.wav", "A sad, slow ballad.", "youtube:-0Gj8-vB1q4")),
    "song-describer": ("s.csv", "caption_id,track_id,caption,is_valid_subset,familiarity,artist_id,album_id,path,"
                       "duration\n"
                       "1,1004034,A pop song.,True,0,artist_7,album_9,34/1004034.mp3,120\n",
                       ("1", "34/1004034.mp3", "A pop song.", "artist_7")),
    "musicbench": ("b.json", '{"dataset": "MusicBench", "location": "data_aug2/-0SdAVK79lg_1.wav", '
                   '"main_caption": "A tune.", "alt_caption": "Another."}\n',
                   ("data_aug2/-0SdAVK79lg_1.wav",) * 2 + ("A tune.", "youtube:-0SdAVK79lg")),
    "table": ("t.csv", "id,audio,text\n1,1.wav,A bell.\n", ("1", "1.wav", "A bell.", None)),
    "caption-list": ("c.json", '[{"path": "00/1.mp3", "caption": "A tune."}]',
                     ("00/1.mp3", "00/1.mp3", "A tune.", None)),
}  # fmt: skip


@pytest.mark.parametrize("layout", SETS)
def test_published_layouts_give_clips_and_words(tmp_path: Path, layout: str) -> None:
    name, held, expected = SETS[layout]
    (tmp_path / name).write_text(held)
    (found,) = read_caption_set(tmp_path / name, name, layout, ROOT)
    assert isinstance(found, Instruction)
    assert (found.item, found.audio, found.text, found.group) == expected
    assert found.source_file == name


@pytest.mark.parametrize(
    ("name", "video"),
    [
        ("data/-0SdAVK79lg.wav", "-0SdAVK79lg"),
        ("data_aug2/-0SdAVK79lg_21.wav", "-0SdAVK79lg"),
        ("a_b-c_d-e_f_1.wav", "a_b-c_d-e_f"),  # `_` is part of ids too
        ("r1nicOVtvkQ", "r1nicOVtvkQ"),
        ("tooshort_1.wav", None),
        ("eleven-or-more.wav", None),
    ],
)
def test_a_clips_name_tells_its_video(name: str, video: str | None) -> None:
    assert video_of(name) == (f"youtube:{video}" if video else None)


def test_a_row_may_hold_several_captions(tmp_path: Path) -> None:
    lines = ["file_name,caption_1,caption_2,caption_3,caption_4,caption_5", "Distorted AM Radio.wav,One.,Two.,,Four.,"]
    (tmp_path / "c.csv").write_text("\n".join(lines))
    found = list(read_caption_set(tmp_path / "c.csv", "c.csv", "clotho", ROOT))
    assert [(row.item, row.text) for row in found if isinstance(row, Instruction)] == [
        ("Distorted AM Radio.wav#caption_1", "One."),
        ("Distorted AM Radio.wav#caption_2", "Two."),
        ("Distorted AM Radio.wav#caption_4", "Four."),
    ]
    rows = [{"id": "u1", "text": "words", "APS": "Low pitch.", "DSD": "", "RP": None}, {"id": "u2"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, second = read_caption_set(tmp_path / "t.jsonl", "t.jsonl", "instruct-tts", ROOT)
    assert (first.item, first.audio) == ("u1#APS", "u1.wav")  # type: ignore[union-attr]
    assert isinstance(second, Reject)
    assert second.reason == "missing_value"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,2.wav,Again.", "duplicate_id"),
        ("2,../2.wav,Out.", "path_outside_root"),
        ("2,/etc/passwd,Out.", "path_outside_root"),
        ("2,,No clip.", "missing_value"),
        ("2,2.wav,", "missing_value"),
        (",2.wav,No id.", "missing_value"),
    ],
)
def test_a_bad_row_is_a_reject_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    (tmp_path / "t.csv").write_text(f"id,audio,text\n1,1.wav,A bell.\n{row}\n")
    _, reject = read_caption_set(tmp_path / "t.csv", "t.csv", "table", ROOT)
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.line) == (reason, 3)


@pytest.mark.parametrize("pattern", ["clip.wav", "{}.wav", "{id", "{id.x}.wav"])
def test_a_pattern_without_columns_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "t.csv").write_text("id,audio,text\n1,1.wav,A bell.\n")
    with pytest.raises(InputError, match="pattern with columns in braces"):
        list(read_caption_set(tmp_path / "t.csv", "t.csv", "table", ROOT, pattern))


@pytest.mark.parametrize("layout", sorted({*CAPTION_LAYOUTS.own} - {"musicbench", "caption-list"}))
def test_a_missing_column_is_one_line(tmp_path: Path, layout: str) -> None:
    (tmp_path / "t.csv").write_text("colour,shape\nred,round\n")
    with pytest.raises(InputError, match=r"^t\.csv"):
        list(read_caption_set(tmp_path / "t.csv", "t.csv", layout, ROOT))


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=12), st.text(max_size=20)), min_size=1, max_size=6))
def test_every_row_is_an_instruction_or_a_reject(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    path = tmp_path_factory.mktemp("sets", numbered=True) / "t.jsonl"
    objects = [dict(zip(("id", "audio", "text"), row, strict=True)) for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in objects))
    found = [row for row in read_caption_set(path, "t.jsonl", "table", ROOT) if not isinstance(row, Note)]
    assert len(found) == len(rows)


def test_columns_are_read_as_csv_writes_them(tmp_path: Path) -> None:
    out = io.StringIO()
    csv.writer(out).writerows(
        [("id", "audio", "text", "group", "model"), ("1", "a b.wav", 'Says "hi", then\nends', "g", "m")]
    )
    (tmp_path / "t.csv").write_text(out.getvalue())
    (found,) = read_caption_set(tmp_path / "t.csv", "t.csv", "table", ROOT)
    assert isinstance(found, Instruction)
    assert (found.audio, found.group, found.model) == ("a b.wav", "g", "m")
    assert found.text.startswith('Says "hi", then')


def test_clips_lie_in_the_files_that_the_owners_ship(tmp_path: Path) -> None:
    sounds = {"data": [{"id": id_, "caption": "Wind."} for id_ in ("Yb0RFKhbpFJA.wav", "Y_abcdefghi_.wav", "180913")]}
    (tmp_path / "w.json").write_text(json.dumps(sounds))
    found = list(read_caption_set(tmp_path / "w.json", "w.json", "wavcaps", tmp_path))
    assert [(row.audio, row.group) for row in found if isinstance(row, Instruction)] == [
        ("Yb0RFKhbpFJA.flac", "youtube:b0RFKhbpFJA"),
        ("Y_abcdefghi_.flac", "youtube:_abcdefghi_"),
        ("180913.flac", None),
    ]
    name, held, _ = SETS["song-describer"]
    (tmp_path / name).write_text(held + "2,1004035,A song.,True,0,artist_7,album_9,35/1004035.mp3,120\n")
    for file in ("34/1004034.2min.mp3", "35/1004035.2min.mp3", "35/1004035.mp3"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    found = list(read_caption_set(tmp_path / name, name, "song-describer", tmp_path))
    assert [row.audio for row in found if isinstance(row, Instruction)] == ["34/1004034.2min.mp3", "35/1004035.mp3"]


def test_json_of_wavcaps_and_lp_musiccaps(tmp_path: Path) -> None:
    sounds = {
        "num_captions_per_audio": 1,
        "data": [{"id": f"{n}", "caption": f"Rain {n}.", "duration": 9.5} for n in (7, 8)],
    }
    (tmp_path / "w.json").write_text(json.dumps(sounds))
    found = list(read_caption_set(tmp_path / "w.json", "w.json", "wavcaps", tmp_path))
    assert [(row.item, row.audio, row.text) for row in found if isinstance(row, Instruction)] == [
        ("7", "7.flac", "Rain 7."), ("8", "8.flac", "Rain 8."),
    ]  # fmt: skip
    music = [
        {"fname": "[-0Gj8-vB1q4]-[30-40]", "ytid": "-0Gj8-vB1q4", "caption_writing": "A ballad.", "caption_summary": ""}
    ]
    (tmp_path / "m.json").write_text(json.dumps(music))
    (row,) = read_caption_set(tmp_path / "m.json", "m.json", "lp-musiccaps", tmp_path)
    assert isinstance(row, Instruction)
    assert (row.item, row.text, row.group) == (
        "[-0Gj8-vB1q4]-[30-40]#caption_writing",
        "A ballad.",
        "youtube:-0Gj8-vB1q4",
    )
