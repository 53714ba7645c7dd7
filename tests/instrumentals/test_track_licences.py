"""A track's own licence: a column of the tables, and what publishing holds back by it."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.tables import AUDIO, Table, column
from earmark.schemas.toml import parse_config, read_toml
from earmark.schemas.tracks import TRACK_LICENCE
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.versions import Store
from tests.builds import rows_of
from tests.captions.captions import build_captions
from tests.conftest import ROOT
from tests.instrumentals.separating import build_separated, config_of, make_tracks
from tests.store.test_licences import clip, make_version

BY = "http://creativecommons.org/licenses"
TERMS = {"by-nc-sa": "CC-BY-NC-SA-3.0", "by-nd": "CC-BY-ND-3.0", "by": "CC-BY-3.0"}

LICENCE = column(TRACK_LICENCE, pa.string(), "Its licence.", optional=True)
SOUND = column("audio", AUDIO, "Its bytes.", optional=True)


def test_instrumentals_of_tracks_that_allow_no_derivatives_are_held_back(tmp_path: Path) -> None:
    rows = make_tracks(tmp_path, 4)
    (tmp_path / "audio_licenses.txt").write_text(
        "".join(
            f"{row['audio']}\nT by A from Jamendo: http://j/{n}\n"
            f"Available under a Creative Commons X license: {BY}/{terms}/3.0/\n\n"
            for n, (row, terms) in enumerate(zip(rows, TERMS, strict=False))
        )
    )
    config = config_of(
        tmp_path,
        source={"audio_licences": "audio_licenses.txt"},
        licences={"own": {"licence": "by track", "redistribute": "all"}},
    )
    store = Store(tmp_path / "store")
    version = build_separated(config, store.root)
    table = pq.read_table(version.files("tracks"))
    stated = dict(zip(table["track_id"].to_pylist(), table["track_licence"].to_pylist(), strict=True))
    assert stated == dict(zip(("t0000", "t0001", "t0002", "t0003"), (*TERMS.values(), "not stated"), strict=True))
    assert "audio_licenses.txt" in version.manifest.inputs
    assert version.manifest.notes()[0] == (
        "tracks by licence: CC-BY-3.0 1, CC-BY-NC-SA-3.0 1, CC-BY-ND-3.0 1, not stated 1"
    )
    with bundled(version, find_corpus("instrumentals").tables, store, audio=True, say=print) as bundle:
        (path,) = [e.source for e in bundle.entries if e.path.startswith("tracks/")]
        left = pq.read_table(path).to_pylist()
        assert {row["track_id"] for row in left if row["audio"]} == {"t0000", "t0002"}
        assert len(left) == 4
        assert not any(entry.path == "report.html" for entry in bundle.entries), "it plays what is held back"


@pytest.mark.parametrize(
    ("cells", "stated", "leaves"),
    [
        (("CC-BY-NC-ND-4.0", "CC-BY-4.0", ""), ("CC-BY-NC-ND-4.0", "CC-BY-4.0", "not stated"), {"b"}),
        (("", "", ""), (None, None, None), {"a", "b", "c"}),  # a column of nothing: the source's licence holds
    ],
)
def test_an_empty_licence_in_a_table_that_states_others_holds_the_changed_audio_back(
    cells: tuple[str, ...], stated: tuple[str | None, ...], leaves: set[str], tmp_path: Path
) -> None:
    rows = make_tracks(tmp_path, 3)
    lines = [f"{name},{row['audio']},{cell}" for name, row, cell in zip("abc", rows, cells, strict=True)]
    (tmp_path / "tracks.csv").write_text("\n".join(["track_id,audio,licence", *lines]) + "\n")
    licences = {"own": {"licence": "by track", "redistribute": "all"}}
    store = Store(tmp_path / "store")
    version = build_separated(config_of(tmp_path, source={"tracks": "tracks.csv"}, licences=licences), store.root)
    found = pq.read_table(version.files("tracks")).select(["track_id", "track_licence"]).to_pylist()
    assert {row["track_id"]: row["track_licence"] for row in found} == dict(zip("abc", stated, strict=True))
    with bundled(version, find_corpus("instrumentals").tables, store, audio=True, say=print) as bundle:
        (path,) = [e.source for e in bundle.entries if e.path.startswith("tracks/")]
        assert {row["track_id"] for row in pq.read_table(path).to_pylist() if row["audio"]} == leaves


def test_a_row_without_a_licence_is_looked_up_in_the_list_of_licences(tmp_path: Path) -> None:
    rows = make_tracks(tmp_path, 2)
    lines = ["track_id,audio,licence", f"a,{rows[0]['audio']},CC-BY-NC-ND-4.0", f"b,{rows[1]['audio']},"]
    (tmp_path / "tracks.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "audio_licenses.txt").write_text(
        f"{rows[1]['audio']}\nT by A from Jamendo: http://j/1\n"
        f"Available under a Creative Commons X license: {BY}/by/3.0/\n"
    )
    source = {"tracks": "tracks.csv", "audio_licences": "audio_licenses.txt"}
    version = build_separated(config_of(tmp_path, source=source), tmp_path / "store")
    found = pq.read_table(version.files("tracks")).select(["track_id", "track_licence"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", "CC-BY-NC-ND-4.0"), ("b", "CC-BY-3.0")]


def test_what_is_held_back_is_held_back_of_what_was_made_from_it(tmp_path: Path) -> None:
    """By the clip's hash: the child need not say whose licence holds."""
    sound = column("sha", pa.string(), "Its hash.", names="clip", role="is")
    origin = column("origin", pa.string(), "Its source.", names="source")
    parts = Table(
        "clips",
        "Clips.",
        pa.schema(
            [
                sound,
                origin,
                column(TRACK_LICENCE, pa.string(), "Its licence.", optional=True),
                SOUND,
            ]
        ),
        ("sha",),
    )
    cut_from = column("cut_from", pa.string(), "What it was cut from.", names="clip")
    cuts = Table(
        "cuts",
        "Cuts.",
        pa.schema([sound, cut_from, origin, SOUND]),
        ("sha",),
    )
    store, free = Store(tmp_path), {"free": "all"}
    held = {"audio": clip("x", "free")["audio"], "origin": "free", "file": None}
    licences = {"p1": "CC-BY-ND-4.0", "p2": "CC-BY-4.0", "p3": None, "p4": "Attribution-NoDerivs", "p5": "Free Lend"}
    rows = [{**held, "sha": sha, "track_licence": licence} for sha, licence in licences.items()]
    origin_version = make_version(store, {"clips": rows}, free, "origin", (parts,))
    parent = Parent(corpus="origin", version="v1", digest=origin_version.manifest.digest())
    made = [{**held, "sha": f"c{n}", "cut_from": f"p{n}"} for n in range(1, 7)]
    child = make_version(store, {"cuts": made}, free, "child", (cuts,), parents=(parent,))
    grown = [{**held, "sha": f"g{n}", "cut_from": f"c{n}"} for n in range(1, 7)]
    next_parent = Parent(corpus="child", version="v1", digest=child.manifest.digest())
    grandchild = make_version(store, {"cuts": grown}, free, "grandchild", (cuts,), parents=(next_parent,))
    for version in (child, grandchild):
        with bundled(version, (cuts,), store, audio=True, say=print) as bundle:
            (path,) = [e.source for e in bundle.entries if e.path.endswith(".parquet")]
            heard = [row["sha"][1:] for row in pq.read_table(path).to_pylist() if row["audio"]]
            assert heard == ["2", "3", "5", "6"]
    origin_version.files("clips")[0].unlink()
    lost = pytest.raises(StoreError, match=r"clips.*: expected .* bytes, .* found no file; see: .*verify origin@v1")
    with lost, bundled(child, (cuts,), store, audio=True, say=print):
        pass


@pytest.mark.parametrize("first", ["cuts", "clips"])
def test_a_table_that_names_a_clip_may_come_before_the_one_that_states_its_licence(first: str, tmp_path: Path) -> None:
    sound = column("sha", pa.string(), "Its hash.", names="clip", role="is")
    origin = column("origin", pa.string(), "Its source.", names="source")
    parts = Table(
        "clips",
        "Clips.",
        pa.schema(
            [
                sound,
                origin,
                column(TRACK_LICENCE, pa.string(), "Its licence.", optional=True),
                SOUND,
            ]
        ),
        ("sha",),
    )
    cut_from = column("cut_from", pa.string(), "What it was cut from.", names="clip")
    cuts = Table(
        "cuts",
        "Cuts.",
        pa.schema([sound, cut_from, origin, SOUND]),
        ("sha",),
    )
    row = {"audio": clip("x", "free")["audio"], "origin": "free", "file": None}
    licences = {"p1": "CC-BY-ND-4.0", "p2": "CC-BY-4.0"}
    rows = {
        "cuts": [{**row, "sha": f"d{sha}", "cut_from": f"c{sha}"} for sha in licences]  # of a cut that comes later
        + [{**row, "sha": f"c{sha}", "cut_from": sha} for sha in licences],
        "clips": [{**row, "sha": sha, "track_licence": terms} for sha, terms in licences.items()],
    }
    tables = (cuts, parts) if first == "cuts" else (parts, cuts)
    version = make_version(Store(tmp_path), rows, {"free": "all"}, "origin", tables)
    with bundled(version, tables, Store(tmp_path), audio=True, say=print) as bundle:
        left = [
            row
            for entry in bundle.entries
            if entry.path.endswith(".parquet")
            for row in pq.read_table(entry.source).to_pylist()
        ]
    assert {row["sha"] for row in left if row["audio"]} == {"p2", "cp2", "dp2"}
    assert len(left) == 6


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    make_tracks(tmp_path, 1)
    with pytest.raises(InputError, match=r"nowhere.txt"):
        build_separated(config_of(tmp_path, source={"audio_licences": "nowhere.txt"}), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_segments_of_an_instrumental_that_is_held_back_are_held_back(tmp_path: Path, own: bool) -> None:
    """By the captions' own list of licences, or by the version that they were made from."""
    demo = ROOT / "data/demo"
    tracks = [line.split("\t")[3] for line in (demo / "tracks/tracks.tsv").read_text("utf-8").splitlines()[1:]]
    listed = tmp_path / "audio_licenses.txt"
    listed.write_text(
        "".join(
            f"{path}\nT by A from Jamendo: http://j/1\nAvailable under a X license: {BY}/{terms}/3.0/\n\n"
            for path, terms in zip(dict.fromkeys(tracks), cycle(["by", "by-nd"]))
        )
    )
    licences = {"demo-tracks": {"licence": "by track", "redistribute": "all"}}

    def config(name: str, stated: bool, **more: Any) -> Any:
        values = {**read_toml(demo / f"{name}.toml"), "licences": licences, **more}
        values["source"] = {**values["source"], **({"audio_licences": str(listed)} if stated else {})}
        return parse_config(find_corpus(name).config, values, demo / f"{name}.toml")

    store = Store(tmp_path / "store")
    build_separated(config("instrumentals", True), store.root)
    version = build_captions(config("captions", own, instrumentals="instrumentals", segments=[1.5, 2]), store.root)
    cut = pq.read_table(version.files("segments")).to_pylist()
    by_track = {row["track_id"]: row["track_licence"] for row in rows_of(store.find("instrumentals"), "tracks")}
    held = {row["file"] for row in cut if by_track.get(row["recording"]) == "CC-BY-ND-3.0"}
    if own:  # tracks that are heard as they are, too
        held |= {row["file"] for row in cut if row["track_licence"] == "CC-BY-ND-3.0"}
        assert {row["track_licence"] for row in rows_of(version, "captions")} == {"CC-BY-3.0", "CC-BY-ND-3.0"}
    assert held
    with bundled(version, find_corpus("captions").tables, store, audio=True, say=print) as bundle:
        left = {entry.path for entry in bundle.entries if entry.path.startswith("audio/")}
    assert left == {row["file"] for row in cut} - held
    assert left
