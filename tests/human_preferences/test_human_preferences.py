"""Votes through a whole build: what they say together, which split they come to, what names nobody."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError
from earmark.schemas.human_preferences import CORPUS, HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.versions import Store, Version, verify
from tests.builds import contents_of, rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import SALT, Row, build_votes, cmi, config_of, vote, write_jsonl
from tests.pseudo_preferences.music import write_clip


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def built(folder: Path, *sources: Row, **values: Any) -> Version:
    version = build_votes(config_of(folder, *sources, **values), folder / "store")
    assert verify(version) == []
    return version


def said(version: Version) -> dict[str, tuple[str, float | None, int]]:
    """Preference, confidence and number of votes by dimension, of a version with one comparison."""
    return {r["dimension"]: (r["preference"], r["confidence"], r["votes"]) for r in rows_of(version, "preferences")}


def turned(row: Row) -> Row:
    """The same vote, its clips shown the other way round."""
    other = {"model_a": "model_b", "model_b": "model_a", "": ""}
    swapped = {"audio-path": row["audio2"], "audio2": row["audio-path"], "model_a": "bee", "model_b": "ant"}
    sides = {name: other[row[name]] for name in ("preference-musicality", "preference-alignment")}
    return {**row, **swapped, **sides}


@pytest.mark.slow
def test_a_majority_is_weighed_by_confidence(tmp_path: Path) -> None:
    sure = {"preference-musicality": "model_b", "confidence_preference-musicality": "5.0"}
    rows = [
        vote(who="ann", **{"confidence_preference-musicality": "2.0"}),
        vote(who="bob", **{"confidence_preference-musicality": "2.5"}),
        vote(who="cy", **sure),
    ]
    version = built(tmp_path, cmi(tmp_path, rows))
    assert said(version) == {
        "musicality": ("b", pytest.approx(9.5 / 3), 3),
        "alignment": ("b", 2.5, 3),
    }
    assert [row["unanimous"] for row in rows_of(version, "preferences")] == [True, False]


@pytest.mark.slow
def test_equal_weights_are_a_tie_and_nobody_learns_from_it(tmp_path: Path) -> None:
    rows = [vote(who="ann"), vote(who="bob", **{"preference-musicality": "model_b"})]
    version = built(tmp_path, cmi(tmp_path, rows), unit="comparison")
    assert said(version)["musicality"][0] == "tie"
    assert {row["dimension"] for row in rows_of(version, "training")} == {"alignment"}


@pytest.mark.slow
def test_a_vote_without_confidence_weighs_three(tmp_path: Path) -> None:
    rows = [
        vote(who="ann", **{"confidence_preference-musicality": ""}),
        vote(who="bob", **{"preference-musicality": "model_b", "confidence_preference-musicality": "2.5"}),
    ]
    row = next(
        r for r in rows_of(built(tmp_path, cmi(tmp_path, rows)), "preferences") if r["dimension"] == "musicality"
    )
    assert (row["preference"], row["weight_a"], row["weight_b"], row["confidence"]) == ("a", 3.0, 2.5, 2.5)


@pytest.mark.slow
def test_which_clip_was_shown_first_changes_nothing(tmp_path: Path) -> None:
    straight, mixed = tmp_path / "straight", tmp_path / "mixed"
    one = built(straight, cmi(straight, [vote(who="ann"), vote(who="bob")]))
    other = built(mixed, cmi(mixed, [vote(who="ann"), turned(vote(who="bob"))]))
    assert said(one) == said(other)
    assert [row["shown"] for row in rows_of(other, "votes")] == ["ab", "ba"]
    assert rows_of(other, "comparisons") == rows_of(one, "comparisons")


@pytest.mark.slow
def test_both_spellings_say_the_same(tmp_path: Path) -> None:
    first = vote(who="ann")
    names = {"audio-path": "audio-a", "audio2": "audio-b", "prompt": "text", "ref-audio-path": "ref-audio"}
    second = {names.get(name, name): value for name, value in first.items()}
    second["user_id"] = second.pop("user id")
    one, other = tmp_path / "one", tmp_path / "other"
    kept = [rows_of(built(folder, cmi(folder, [row])), "votes") for folder, row in ((one, first), (other, second))]
    assert kept[0] == kept[1]


@pytest.mark.slow
def test_an_annotator_votes_once_on_two_clips(tmp_path: Path) -> None:
    version = built(tmp_path, cmi(tmp_path, [vote(), turned(vote()), vote(who="bob"), vote(who=""), vote(who="")]))
    assert len(rows_of(version, "votes")) == 4
    reject = rows_of(version, "rejects")
    assert [(row["reason"], row["line"]) for row in reject] == [("repeated_vote", 2)]


@pytest.mark.slow
def test_votes_without_a_prompt_meet_by_their_clips(tmp_path: Path) -> None:
    votes = ["x,y,ann,a", "x,y,bob,b", "y,x,cy,b", "x,y,dee,a", "y,x,ann,a", "x,z,ann,a", ",,bob,a"]
    rows = [("{}.wav,{}.wav,{},{}" if one[0] != "," else "{},{},{},{}").format(*one.split(",")) for one in votes]
    (tmp_path / "v.csv").write_text("\n".join(["audio_a,audio_b,annotator,overall", *rows]) + "\n")
    version = built(tmp_path, {"name": "ab", "format": "votes", "files": ["v.csv"]})
    rejects = [(row["reason"], row["line"]) for row in rows_of(version, "rejects")]
    assert sorted(rejects) == [("missing_value", 8), ("repeated_vote", 6)]
    found = {row["clip_b"]: row for row in rows_of(version, "comparisons")}
    assert {clip: row["votes"] for clip, row in found.items()} == {"ab/y.wav": 4, "ab/z.wav": 1}
    assert len({row["prompt_id"] for row in found.values()}) == 2
    (agreed,) = (row for row in rows_of(version, "agreement") if row["scope"] == "all")
    assert (agreed["vote_pairs"], agreed["agree"]) == (6, 3)  # a b a a, in the letters of the comparison


@pytest.mark.slow
def test_pairs_without_a_prompt_are_counted_as_no_prompts(tmp_path: Path) -> None:
    """Give six pairs: one shares its text with another, one has an id alone, two have neither."""
    none = {"prompt": "", "prompt id": ""}
    rows = [vote(0), vote(1), vote(2, prompt="a  TUNE, number 1"), vote(3, prompt=""), vote(4, **none), vote(5, **none)]
    (tmp_path / "v.csv").write_text("audio_a,audio_b,annotator,overall\nx.wav,y.wav,ann,a\n")
    version = built(tmp_path, cmi(tmp_path, rows), {"name": "ab", "format": "votes", "files": ["v.csv"]})
    card = (version.folder / "README.md").read_text("utf-8").split("## Votes\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    at = cells[0].index("prompts")
    assert {row[0]: row[at] for row in cells if row[0] in ("all", "cmi", "ab")} == {"all": "3", "cmi": "3", "ab": "0"}
    command = ["eval", "tables", "human-preferences", "--table", "cmi-rewardbench-1", "--json"]
    done = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "store")], catch_exceptions=False)
    counts = {name: cell for name, *_, cell in json.loads(done.stdout)["rows"]}  # CMI-Pref's column is the last
    assert counts["#Unique prompts"] == "3"


@pytest.mark.slow
@pytest.mark.parametrize("may", ["none", "rows"])
def test_figures_that_a_closed_source_went_into_stay_here(tmp_path: Path, may: str) -> None:
    """Figures of a closed source alone leave with no table and no section of the card, nor those over all sources."""
    people = ("ann", "bob")
    sources = [cmi(tmp_path, [vote(n + at, who) for n in range(3) for who in people], name=name)
               for at, name in ((0, "free"), (10, "vault"))]  # fmt: skip
    version = built(tmp_path, *sources, licences={"free": {"redistribute": "rows"}, "vault": {"redistribute": may}})
    assert {"vault", "free", "all"} <= {row["value"] for row in rows_of(version, "agreement")}
    assert {"vault", "free", "all"} == {row["source"] for row in rows_of(version, "dimensions")}
    with bundled(version, CORPUS.tables, Store(tmp_path / "store"), audio=True, say=print) as bundle:
        card = next(entry.source.read_text("utf-8") for entry in bundle.entries if entry.path == "README.md")
        tables = {path.parts[0] for entry in bundle.entries if (path := Path(entry.path)).suffix == ".parquet"}
        held = bundle.held_rows
    figures = {"agreement", "dimensions"}
    if may == "rows":
        assert (held, figures - tables) == ({}, set())
        assert "\n## Votes\n" in card
        return
    assert not tables & figures
    assert {"votes", "comparisons", "preferences"} <= tables
    assert {name: held[name] for name in figures} == {name: len(rows_of(version, name)) for name in figures}
    headings = [line for line in card.splitlines() if line.startswith("## ")]
    assert headings[:3] == ["## Held back", "## How it was made", "## Tables"]
    assert [line for line in card.split("## Tables\n")[1].splitlines() if "vault" in line] == [
        "| vault | not stated | nothing |"
    ]


@pytest.mark.slow
def test_nobody_is_named(tmp_path: Path) -> None:
    words = "ann thinks a is fine; write to ann@mail.com or call +49 30 1234567"
    rows = [vote(who="ann@mail.com", feedback=words), vote(who="bob", feedback="ok")]
    version = built(tmp_path, cmi(tmp_path, rows))
    everything = b"".join(contents_of(version.folder).values())
    texts = json.dumps([rows_of(version, table) for table in ("votes", "rejects")])
    for word in ("ann@mail", "+49", "1234567", SALT):
        assert word not in texts
        assert word.encode() not in everything
    ids = [row["annotator"] for row in rows_of(version, "votes")]
    assert len(set(ids)) == 2
    assert rows_of(version, "votes")[1]["feedback"] == "ok"


@pytest.mark.slow
def test_another_salt_gives_other_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cmi(tmp_path, [vote()])
    first = built(tmp_path, source)
    monkeypatch.setenv("EARMARK_SALT", "another salt of the tests")
    second = built(tmp_path, source)
    assert first.name != second.name
    assert rows_of(first, "votes")[0]["annotator"] != rows_of(second, "votes")[0]["annotator"]


def test_a_short_salt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", "short")
    with pytest.raises(EarmarkError, match="EARMARK_SALT"):
        built(tmp_path, cmi(tmp_path, [vote()]))


@pytest.mark.slow
def test_prompts_and_clips_do_not_cross_splits(tmp_path: Path) -> None:
    rows = [vote(n, who=f"w{n % 7}", **{"prompt id": f"p{n // 2}", "prompt": f"Prompt {n // 3}"}) for n in range(90)]
    version = built(tmp_path, cmi(tmp_path, rows), split={"test": 20, "validation": 10})
    where: dict[str, set[str]] = {}
    for row in rows_of(version, "comparisons"):
        for name in (row["prompt_id"], row["source_prompt_id"], row["clip_a"], row["clip_b"]):
            where.setdefault(name, set()).add(row["split"])
    assert all(len(splits) == 1 for splits in where.values())
    found = Counter(row["split"] for row in rows_of(version, "comparisons"))
    assert 10 < found["test"] <= 20
    assert 0 < found["validation"] <= 10


@pytest.mark.slow
def test_the_same_sound_under_two_names_does_not_cross(tmp_path: Path) -> None:
    for number in range(8):
        for side in "ab":
            write_clip(tmp_path / f"{number}-{side}.wav", 2 * number + (side == "b"))
    for number in range(4):  # the clips of 4 to 7 are those of 0 to 3
        (tmp_path / f"{number + 4}-a.wav").write_bytes((tmp_path / f"{number}-a.wav").read_bytes())
    version = built(tmp_path, cmi(tmp_path, [vote(n) for n in range(8)]), audio="index", split={"test": 2})
    split = {row["clip_a"].removeprefix("cmi/")[0]: row["split"] for row in rows_of(version, "comparisons")}
    assert all(split[str(n)] == split[str(n + 4)] for n in range(4))
    assert Counter(split.values()) == {"test": 2, "train": 6}


@pytest.mark.slow
def test_the_test_split_is_balanced(tmp_path: Path) -> None:
    rows = []
    for number in range(200):  # one in ten has lyrics
        rows.append(vote(number, **({"lyrics": f"la {number}"} if number % 10 == 7 else {})))
    version = built(tmp_path, cmi(tmp_path, rows), split={"test": 30})
    tested = [row for row in rows_of(version, "comparisons") if row["split"] == "test"]
    assert Counter(row["modality"] for row in tested) == {"text": 15, "text+lyrics": 15}


def arena_row(number: int, preference: str = "A", **values: Any) -> Row:
    return {
        "battle_uuid": f"u{number}",
        "date": f"2025-0{number % 3 + 1}-11",
        "prompt": f"battle {number}",
        "audio_a": "",
        "system_a": "ant",
        "audio_b": "",
        "system_b": "bee",
        "preference": preference,
        "user_pseudonym": "v1",
        **values,
    }


@pytest.mark.slow
def test_an_arenas_filter_says_what_it_left_out(tmp_path: Path) -> None:
    rows = [arena_row(1), arena_row(2, "B"), arena_row(3, "TIE"), arena_row(4, "BOTH_BAD"), arena_row(5, system_b="")]
    write_jsonl(tmp_path / "m.jsonl", rows)
    source = {"name": "arena", "format": "music-arena", "files": ["m.jsonl"]}
    version = built(tmp_path, source)
    assert version.manifest.rejects == {"both_bad": 1, "generation_failed": 1, "tie": 1}
    step = next(step for step in version.manifest.steps if step.name == "votes")
    assert (step.entered, step.kept) == (5, 2)
    assert "1 both_bad, 1 generation_failed, 1 tie" in step.notes[0]
    assert {row["month"] for row in rows_of(version, "benchmark")} == {"2025-02", "2025-03"}
    kept = built(tmp_path, {**source, "ties": "keep"})
    assert Counter(row["overall"] for row in rows_of(kept, "votes")) == {"a": 1, "b": 1, "tie": 2}
    equal = built(tmp_path, {**source, "ties": "drop-bad"})
    assert Counter(row["overall"] for row in rows_of(equal, "votes")) == {"a": 1, "b": 1, "tie": 1}
    assert equal.manifest.rejects == {"both_bad": 1, "generation_failed": 1}


@pytest.mark.slow
def test_rated_clips_join_training_on_one_scale(tmp_path: Path) -> None:
    (tmp_path / "pam.csv").write_text("file,OVL,REL,text\nmusic/ant/1.wav,50,100,A tune\nmusic/bee/1.wav,0,,A tune\n")
    source = {"name": "pam", "format": "pam", "files": ["pam.csv"], "scale": [0, 100]}
    version = built(tmp_path, cmi(tmp_path, [vote()]), source)
    ratings = {(row["system"], row["dimension"]): row["rating"] for row in rows_of(version, "ratings")}
    assert ratings == {("ant", "musicality"): 3.0, ("ant", "alignment"): 5.0, ("bee", "musicality"): 1.0}
    kinds = Counter((row["kind"], row["split"]) for row in rows_of(version, "training"))
    assert kinds == {("pair", "test"): 2, ("rating", "test"): 3} or kinds == {
        ("pair", "train"): 2,
        ("rating", "test"): 3,
    }
    assert Counter(row["task"] for row in rows_of(version, "benchmark"))["pam"] == 3


@pytest.mark.slow
def test_several_ratings_of_a_clip_are_averaged_in_any_order(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [(f"music/ant/{rng.randrange(6)}.wav", rng.randrange(1, 6), rng.choice(["", 1, 2, 5])) for _ in range(40)]
    source = {"name": "pam", "format": "pam", "files": ["pam.csv"]}
    found = []
    for name in ("one", "other"):
        rng.shuffle(rows)
        (tmp_path / "pam.csv").write_text("file,OVL,REL\n" + "".join(f"{f},{m},{a}\n" for f, m, a in rows))
        version = build_votes(config_of(tmp_path, cmi(tmp_path, [vote()]), source), tmp_path / name)
        assert "averaged 40 ratings into 6 clips" in version.manifest.notes()
        assert [row for row in rows_of(version, "rejects") if row["table"] == "ratings"] == []
        found.append(
            {row["rating_id"]: (row["score"], row["votes"], row["score_std"]) for row in rows_of(version, "ratings")}
        )
    assert found[0] == found[1]
    for place, dimension in ((1, "musicality"), (2, "alignment")):
        for file in {row[0] for row in rows}:
            scores = [row[place] for row in rows if row[0] == file and row[place] != ""]
            mean, votes, std = found[0][f"pam/{file}-{dimension}"]
            assert mean == pytest.approx(statistics.fmean(scores))
            assert votes == len(scores)
            assert std == pytest.approx(statistics.stdev(scores))


@pytest.mark.slow
def test_a_published_mean_counts_once_and_contradictions_are_rejects(tmp_path: Path) -> None:
    sets = tmp_path / "me/sets"
    sets.mkdir(parents=True)
    name = "audiomos2025-track1-S002_P00{}.wav"
    lines = [f"{name.format(1)},3,3", f"{name.format(1)},3,3", f"{name.format(2)},3,3", f"{name.format(2)},4,3"]
    (sets / "train_mos_list.txt").write_text("\n".join(lines) + "\n")
    (sets / "test_mos_list.txt").write_text(f"{name.format(1)},5,5\n")
    source = {"name": "musiceval", "format": "musiceval", "root": "me"}
    version = build_votes(config_of(tmp_path, cmi(tmp_path, [vote()]), source), tmp_path / "store")
    scores = {
        row["clip_id"][-5]: row["score"] for row in rows_of(version, "ratings") if row["dimension"] == "musicality"
    }
    assert scores == {"1": 3.0, "2": 3.5}
    rejects = [(row["reason"], row["file"], row["line"]) for row in rows_of(version, "rejects")]
    assert sorted(rejects) == [
        ("conflicting_facts", "musiceval/sets/test_mos_list.txt", 1),
        ("duplicate_id", "musiceval/sets/train_mos_list.txt", 2),
    ]


@pytest.mark.slow
def test_a_tested_prompt_takes_its_rated_clips_along(tmp_path: Path) -> None:
    sets = tmp_path / "me/sets"
    sets.mkdir(parents=True)
    (sets / "train_mos_list.txt").write_text(
        "audiomos2025-track1-S002_P001.wav,3,3\naudiomos2025-track1-S002_P002.wav,3,3\n"
    )
    (tmp_path / "me/prompt_info.txt").write_text("P001\tA tune, number 0\nP002\tanother\n")
    rated = {"name": "musiceval", "format": "musiceval", "root": "me"}
    version = built(tmp_path, cmi(tmp_path, [vote(0)], split="test"), rated)
    where = {row["source_prompt_id"]: row["split"] for row in rows_of(version, "ratings")}
    assert where == {"P001": "test", "P002": "train"}
    assert any("left their source's split" in note for note in version.manifest.notes())


def test_a_list_of_rated_clips_holds_those_of_its_split(tmp_path: Path) -> None:
    """Five clips of one prompt, of which the second and the fourth are tested; the ratings rise."""
    splits = dict(zip("abcde", ["train", "test", "train", "test", "train"], strict=True))
    clips = [{"clip_id": one, "split": split, "clip_sha256": f"sound {one}"} for one, split in splits.items()]
    ratings = [
        {"rating_id": one, "split": splits[one], "clip_id": one, "prompt_id": "p", "text": "A tune"}
        | {"dimension": "musicality", "rating": float(place)}
        for place, one in enumerate(splits)
    ]
    with connect(tmp_path) as db:
        for table in CORPUS.tables:
            held = {"clips": clips, "ratings": ratings}.get(table.name, [])
            schema = pa.schema([pa.field(field.name, field.type) for field in table.schema])
            db.register(table.name, pa.Table.from_pylist(held, schema))
        given = {"dimension": "musicality"}
        rows = db.sql(query("human_preferences/listed"), params=given).to_arrow_table().to_pylist()
    found = {row["split"]: ([one[-1] for one in row["audios"]], row["ranks"]) for row in rows}
    assert found == {"train": (["e", "c", "a"], [1, 2, 3]), "test": (["d", "b"], [1, 2])}
    assert len({row["id"] for row in rows}) == len(rows) == 2


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    source = cmi(tmp_path, [vote(n % 30, who=f"w{n}") for n in range(90)])
    config = config_of(tmp_path, source, split={"test": 8})
    one, other = (build_votes(config, tmp_path / name) for name in ("one", "other"))
    assert contents_of(one.folder) == contents_of(other.folder)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Version:
    path = ROOT / "data/demo/human-preferences.toml"
    config = parse_config(HumanPreferences, read_toml(path), path)
    return build_votes(config, tmp_path_factory.mktemp("demo"))


@pytest.mark.slow
def test_the_demo_reads_every_layout(demo: Version) -> None:
    assert verify(demo) == []
    by_source = Counter(row["source"] for row in rows_of(demo, "votes"))
    assert set(by_source) == {"cmi-pref", "music-arena", "arena-battles", "our-study", "headphone-study"}
    for step in demo.manifest.steps:
        assert step.entered == step.kept + sum(step.rejected.values()) + sum(step.dropped.values())
    lines = 0
    for name in ("first", "second"):
        lines += len((ROOT / f"data/demo/votes/cmi_pref/{name}.jsonl").read_text().splitlines())
    rejected = sum((row["file"] or "").startswith("cmi-pref/") for row in rows_of(demo, "rejects"))
    assert by_source["cmi-pref"] + rejected == lines
    table = (ROOT / "data/demo/votes/table.csv").read_text().splitlines()
    assert by_source["headphone-study"] == len(table) - 1
    assert {row["task"] for row in rows_of(demo, "benchmark")} == {"cmi-pref", "music-arena", "musiceval", "pam"}
    agreement = [row for row in rows_of(demo, "agreement") if row["scope"] == "all"]
    assert {row["dimension"] for row in agreement} == {"musicality", "alignment"}
    assert all(row["rate_low"] < row["rate"] < row["rate_high"] for row in agreement)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tested_pairs", "tested_clips", "preferred_clips", "trained_on"])
def test_queries_give_what_their_users_read(demo: Version, tmp_path: Path, name: str) -> None:
    given = {
        "tested_pairs": {"task": "cmi-pref", "dimension": "musicality"},
        "tested_clips": {"task": "pam", "dimension": "alignment"},
        "preferred_clips": {"dimension": "musicality"},
        "trained_on": {},
    }[name]
    with connect(tmp_path) as db:
        for table in ("clips", "comparisons", "preferences", "ratings", "training", "benchmark", "votes"):
            view_parquet(db, table, [Path(path) for path in demo.files(table)])
        rows = db.sql(query(f"human_preferences/{name}"), params=given).to_arrow_table().to_pylist()
    assert rows
    assert len({row["id"] for row in rows}) == len(rows)
    if name == "tested_pairs":
        assert {row["target"] for row in rows} == {"a", "b"}
        clips = {pq.read_schema(path).names[0] for path in demo.files("clips")}
        assert clips == {"clip_id"}
