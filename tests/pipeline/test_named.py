"""What a list of a package's corpus names counts as an input: the clips that it reads, as for corpora of ours."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.files import source_root
from earmark.schemas.machine import uncollected
from earmark.tasks.pipeline.inputs import Input, named_digests, names_in
from earmark.tasks.pipeline.media import audio_digest
from earmark.tasks.store.versions import Store
from tests.before.builds import coded, tone

NAMES = ("a b.wav", "clips/ü.flac", "c,d.mp3", "e.v2.wav")
LISTS = {
    "list.csv": 'id,file\n1,a b.wav\n2,clips/ü.flac\n3,"c,d.mp3"\n4,e.v2.wav\n',
    "list.tsv": "a b.wav\t3.5\nclips/ü.flac\t4\nc,d.mp3\t1\ne.v2.wav\t2\n",
    "list.txt": "x 'a b.wav' 1\nsys clips/ü.flac 2\n\"c,d.mp3\"\ne.v2.wav\n",
    "list.jsonl": "".join(json.dumps({"clip": name}) + "\n" for name in NAMES),
    "list.json": json.dumps({name: {"score": 1.5} for name in NAMES}, ensure_ascii=False),
}


@pytest.mark.parametrize("name", [*LISTS, "list.parquet"])
def test_names_are_found_in_lists_of_every_form(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in LISTS:
        path.write_text(LISTS[name], "utf-8")
    else:
        pq.write_table(pa.table({"file": list(NAMES), "score": [1.0] * 4}), path)
    wanted = set(NAMES) - ({"c,d.mp3"} if name == "list.tsv" else set())
    assert wanted <= names_in(path)


def test_a_clip_that_changes_or_comes_later_changes_the_digest(tmp_path: Path) -> None:
    store, base = Store(tmp_path / "store"), tmp_path / "lab"
    (base / "lists/clips").mkdir(parents=True)
    path = base / "lists/takes.csv"
    path.write_text("take,file,notes\n1,clips/a.wav,notes/a.json\n2,clips/later.wav,\n3,../../out.wav,\n")
    (tmp_path / "out.wav").write_bytes(coded(tone(1, 1.0), "WAV"))
    (base / "lists/clips/a.wav").write_bytes(coded(tone(2, 1.0), "WAV"))
    (base / "notes").mkdir()  # seen from the config
    (base / "notes/a.json").write_text("{}")
    (base / "unnamed.wav").write_bytes(b"")

    def digests() -> dict[str, str]:
        return named_digests(store, base, [("takes", path)])

    seen = [digests()]
    assert seen[0].keys() == {"takes/audio", "takes/files"}
    (base / "unnamed.wav").write_bytes(b"1")
    (tmp_path / "out.wav").write_bytes(b"1")
    assert digests() == seen[0]
    for change in (
        lambda: (base / "lists/clips/a.wav").write_bytes(coded(tone(3, 1.0), "WAV")),
        lambda: (base / "lists/clips/later.wav").write_bytes(coded(tone(4, 1.0), "WAV")),
        lambda: (base / "notes/a.json").write_text("[]"),
    ):
        change()
        assert digests() not in seen
        seen.append(digests())


def test_a_list_that_names_nothing_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("id,text,bpm\n1,see fig.1 and so on.,60.5\n")
    assert named_digests(Store(tmp_path / "store"), tmp_path, [("notes", path)]) == {}


def test_to_name_and_digest_many_clips_searches_for_no_garbage(tmp_path: Path) -> None:
    names = [f"{number}.wav" for number in range(20_000)]  # none is there, so that nothing is decoded
    rows = Input(name="rows", read=lambda: names, root=source_root(tmp_path), clips=lambda row: [row])
    searches: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        searches.append(about["generation"])

    gc.collect()
    gc.callbacks.append(count)
    try:
        audio_digest(Store(tmp_path / "store"), "hash audio", rows.named_audio())
    finally:
        gc.callbacks.remove(count)
    assert len(searches) <= 20  # each counts when it begins and when it ends; with the search on there are over 200
    assert gc.isenabled()


def test_the_search_for_garbage_goes_on_after_an_error_and_stays_off_where_it_was_off() -> None:
    def fail() -> None:
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        uncollected()(fail)()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
