"""A withdrawal from `human-preferences`: nothing of it is left, and what stays is as if it had never been there."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError, StoreError
from earmark.schemas.human_preferences import CORPUS, HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.exports import export as exporting
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.release import withdrawal
from earmark.tasks.store.commit import Made, recompute
from earmark.tasks.store.diff import changed_rows, diff_table
from earmark.tasks.store.receipts import save_receipt
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import Store, Version, verify
from earmark.tasks.store.withdrawals import Kind
from tests.builds import contents_of, receipt_of, rows_of, traces
from tests.captions.captions import build_captions
from tests.conftest import ROOT
from tests.human_preferences.votes import SALT, Row, build_votes, cmi, config_of, vote
from tests.instruction_rubrics.rubrics import build_rubrics
from tests.instrumentals.separating import build_separated
from tests.music_prompts.prompt_builds import build_prompts
from tests.pseudo_preferences.music import build_judged

ALL = {name: find_corpus(name) for name in corpora()}


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def withdraw(store: Store, kind: Kind, value: str, corpus: str = "human-preferences") -> Version:
    """Withdraw it from the whole store; the newest version of a corpus."""
    withdrawal.withdraw(store, ALL, withdrawal.search(store, ALL, kind, value), "asked for")
    version = store.find(corpus)
    assert verify(version) == []
    return version


def keys(rows: Iterable[Row], name: str) -> set[str]:
    return {row[name] for row in rows}


@pytest.mark.slow
def test_an_export_of_withdrawn_rows_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, cmi(tmp_path, [vote(n, who) for n in range(3) for who in ("ann", "bob")]))
    store = Store(build_votes(config, tmp_path / "store").folder.parents[1])
    told: list[str] = []
    monkeypatch.setattr(exporting, "say", told.append)

    def exported(name: str) -> list[str]:
        told.clear()
        wish = ExportOptions("jsonl", table="votes", force=True)
        exporting.export(store.find(f"{CORPUS.name}@{name}"), CORPUS, store, tmp_path / name, wish)
        return told

    assert exported("v1") == []
    assert withdraw(store, "annotator", rows_of(store.find(CORPUS.name), "votes")[0]["annotator"]).name == "v2"
    (line,) = exported("v1")
    assert line.startswith("human-preferences v1 contains data withdrawn on ")
    assert "(asked for)" in line
    assert exported("v2") == []


@pytest.mark.slow
def test_a_damaged_file_does_not_become_a_sound_one_of_the_next_version(tmp_path: Path) -> None:
    config = config_of(tmp_path, cmi(tmp_path, [vote(n, who) for n in range(3) for who in ("ann", "bob")]))
    first = build_votes(config, tmp_path / "store")
    store, who = Store(first.folder.parents[1]), rows_of(first, "votes")[0]["annotator"]
    (file,) = first.files("rejects")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"parquet-cpp", b"parquet-cpP"))  # which every reader passes over
    with pytest.raises(StoreError, match=rf"^{file}: not as committed; .* inspect verify {CORPUS.name}@v1$"):
        withdraw(store, "annotator", who)
    assert [version.name for version in store.versions(CORPUS.name)] == ["v1"]
    file.write_bytes(whole)
    assert withdraw(store, "annotator", who).name == "v2"


def changes(old: Version, new: Version) -> dict[tuple[str, str], set[str]]:
    """What `earmark inspect diff --rows` lists: first key columns, or a reject's item, by table and kind of change."""
    found: dict[tuple[str, str], set[str]] = {}
    with duckdb.connect() as connection:
        for table in CORPUS.tables:
            diff_table(connection, table, old, new)
            for row in changed_rows(connection, table):
                found.setdefault((table.name, row["what"]), set()).add(row[table.key[0] if table.key else "item"])
    return found


def expected_changes(old: Version, leaving: set[str], rejects: set[str]) -> dict[tuple[str, str], set[str]]:
    """What `diff` may list where those votes and rejects leave, worked out from the old version's rows alone."""
    votes = rows_of(old, "votes")
    stay = keys((row for row in votes if row["vote_id"] not in leaving), "comparison_id")
    touched = keys((row for row in votes if row["vote_id"] in leaving), "comparison_id")
    comparisons = {row["comparison_id"]: row for row in rows_of(old, "comparisons")}
    named = {
        clip
        for key, row in comparisons.items()
        if key in stay or key not in touched
        for clip in (row["clip_a"], row["clip_b"], row["reference_clip"])
    } | keys(rows_of(old, "ratings"), "clip_id")
    found = {
        ("votes", "removed"): leaving,
        ("comparisons", "removed"): touched - stay,
        ("comparisons", "changed"): touched & stay,
        ("clips", "removed"): keys(rows_of(old, "clips"), "clip_id") - named,
        ("preferences", "removed"): {
            row["preference_id"] for row in rows_of(old, "preferences") if row["comparison_id"] in touched - stay
        },
        ("rejects", "removed"): rejects,
    }
    return {what: rows for what, rows in found.items() if rows}


COUNTED = {table.name for table in CORPUS.tables if table.counted}


def check_changes(old: Version, new: Version, leaving: set[str], rejects: set[str]) -> None:
    """Hold `diff` to what it may list; what is counted changes only where a vote on it left."""
    found, wanted = changes(old, new), expected_changes(old, leaving, rejects)
    wanted = {what: rows for what, rows in wanted.items() if what[0] not in COUNTED} | {
        what: rows for what, rows in wanted.items() if what == ("preferences", "removed")
    }
    assert {what: rows for what, rows in found.items() if what[0] not in COUNTED or what in wanted} == wanted
    touched = {row["comparison_id"] for row in rows_of(old, "votes") if row["vote_id"] in leaving}
    for (table, _), rows in found.items():
        if table in ("preferences", "training", "benchmark"):
            assert {row.rpartition("-")[0] for row in rows} <= touched | leaving


@pytest.fixture(scope="module")
def _demo(tmp_path_factory: pytest.TempPathFactory) -> Store:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        root = tmp_path_factory.mktemp("demo")
        path = ROOT / "data/demo/human-preferences.toml"
        build_votes(parse_config(HumanPreferences, read_toml(path), path), root)
        return Store(root)


@pytest.fixture
def demo(_demo: Store, tmp_path: Path) -> Store:
    """A store of its own with the demo's version."""
    shutil.copytree(_demo.root, tmp_path / "store")
    return Store(tmp_path / "store")


def own_words(rows: Iterable[Row], *names: str) -> set[str]:
    """Values of columns, and the parts of ids that an export gave: what a search for the rows would look for."""
    values = {row[name] for row in rows for name in names if row[name]}
    return {word for value in values for word in (value, value.rpartition("/")[2]) if len(word) >= 10}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["arena-battles", "cmi-pref", "music-arena", "our-study", "headphone-study"])
def test_an_annotator_of_the_demo_leaves_no_trace(demo: Store, source: str) -> None:
    old = demo.find("human-preferences")
    votes = rows_of(old, "votes")
    who = Counter(row["annotator"] for row in votes if row["source"] == source and row["annotator"]).most_common()[0][0]
    leaving = [row for row in votes if row["annotator"] == who]
    rejects = [row for row in rows_of(old, "rejects") if {"kind": "annotator", "id": who} in row["made_from"]]
    words = {who, *own_words(leaving, "vote_id"), *own_words(rejects, "item")}
    if source == "arena-battles":
        words |= own_words(leaving, "source_file")
    assert {word for _, word in traces(old, words)} == words
    new = withdraw(demo, "annotator", who)
    assert traces(new, words) == []
    check_changes(old, new, keys(leaving, "vote_id"), keys(rejects, "item"))


@pytest.mark.slow
def test_a_clip_of_the_demo_leaves_no_trace(demo: Store) -> None:
    old = demo.find("human-preferences")
    clip = next(row for row in rows_of(old, "clips") if row["source"] == "cmi-pref" and row["clip_sha256"])
    same = keys((row for row in rows_of(old, "clips") if row["clip_sha256"] == clip["clip_sha256"]), "clip_id")
    gone = [row for row in rows_of(old, "comparisons") if same & {row["clip_a"], row["clip_b"], row["reference_clip"]}]
    leaving = [row for row in rows_of(old, "votes") if row["comparison_id"] in keys(gone, "comparison_id")]
    words = {clip["clip_sha256"], *same, *own_words(gone, "comparison_id"), *own_words(leaving, "vote_id")}
    assert {word for _, word in traces(old, words)} == words
    new = withdraw(demo, "clip", clip["clip_sha256"])
    assert traces(new, words) == []
    check_changes(old, new, keys(leaving, "vote_id"), set())


@pytest.mark.slow
def test_a_prompt_of_the_demo_leaves_no_trace(demo: Store) -> None:
    old = demo.find("human-preferences")
    texts = [row["text"] for table in ("comparisons", "ratings") for row in rows_of(old, table) if row["text"]]
    own = [row for row in rows_of(old, "comparisons") if sum(row["text"] in text for text in texts) == 1]
    prompt = own[0]["prompt_id"]  # no other prompt has its words
    gone = [row for row in rows_of(old, "comparisons") if row["prompt_id"] == prompt]
    leaving = [row for row in rows_of(old, "votes") if row["comparison_id"] in keys(gone, "comparison_id")]
    words = {prompt, *own_words(gone, "comparison_id", "text"), *own_words(leaving, "vote_id")}
    new = withdraw(demo, "prompt", prompt)
    assert traces(new, words) == []
    check_changes(old, new, keys(leaving, "vote_id"), set())


def tables_of(version: Version) -> dict[str, bytes]:
    """The Parquet files."""
    return {path: held for path, held in contents_of(version.folder).items() if path.endswith(".parquet")}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_stays_is_as_if_they_had_never_voted(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    others = [
        vote(
            draw.randrange(8),
            draw.choice("abcd"),
            **{
                "preference-musicality": draw.choice(["model_a", "model_b", ""]),
                "confidence_preference-musicality": draw.choice(["1.0", "2.5", "5.0", ""]),
                "date": draw.choice(["2025-01-01", "2025-03-01"]),
            },
        )
        for _ in range(30)
    ]
    sides = [(number, draw.choice(["model_a", "model_b"])) for number in draw.sample(range(10), 6)]
    theirs = [vote(number, "eve", **{"preference-musicality": side, "date": "2024-12-01"}) for number, side in sides]
    config = config_of(tmp_path, cmi(tmp_path, [*others, *theirs, *theirs[:2]], split="train"))
    old = build_votes(config, tmp_path / "store")
    who = rows_of(old, "votes")[-1]["annotator"]
    new = withdraw(Store(tmp_path / "store"), "annotator", who)
    cmi(tmp_path, others)
    without = build_votes(config, tmp_path / "other")
    assert tables_of(new) == tables_of(without)
    assert tables_of(new) != tables_of(old)


@pytest.mark.slow
def test_it_is_built_again_to_the_same_version(tmp_path: Path) -> None:
    rows = [vote(n, who) for n in range(4) for who in ("ann", "bob", "cy")[: n + 1]]
    config = config_of(tmp_path, cmi(tmp_path, rows), split={"test": 2})
    store = Store(tmp_path / "store")
    old = build_votes(config, store.root)
    who = next(row["annotator"] for row in rows_of(old, "votes") if row["vote_id"].endswith(":2#1"))  # bob, of prompt 1
    new = withdraw(store, "annotator", who)
    assert build_votes(config, store.root) == new
    assert build_votes(config, store.root, force=True) == new
    later = build_votes(config.model_copy(update={"seed": 5}), store.root)  # another build, from all inputs
    assert who not in keys(rows_of(later, "votes"), "annotator")
    assert tables_of(later).keys() == tables_of(new).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, corpus in ALL.items() if corpus.recount])
def test_counting_again_where_nothing_left_gives_the_same_bytes(demo: Store, chain: Store, name: str) -> None:
    store = demo if name == "human-preferences" else chain
    old = store.find(name)
    with staging(store, name, "0" * 16, say=print) as stage:
        shutil.copytree(old.folder, stage.version, dirs_exist_ok=True)
        steps = recompute(Made(ALL[name], old.manifest.config, {}, "", {}), stage)
        written = {path: held for path, held in contents_of(stage.version).items() if path.endswith(".parquet")}
    assert written == tables_of(old)
    places = {step.name: step.place for step in old.manifest.steps}
    for step in steps:
        assert step.model_copy(update={"place": places[step.name]}) in old.manifest.steps


@pytest.fixture(scope="module")
def _chain(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with demos that read each other: instrumentals, captions of them, prompts written after captions; and
    clips that two corpora hold."""
    root = tmp_path_factory.mktemp("chain")

    def config(name: str, **more: Any) -> Any:
        path = ROOT / f"data/demo/{name}.toml"
        return parse_config(ALL[name].config, {**read_toml(path), **more}, path)

    build_separated(config("instrumentals"), root)
    build_captions(config("captions", instrumentals="instrumentals"), root)
    own = [{"name": "ours", "version": "captions"}, {"name": "direct", "file": "tags/direct.json"}]
    build_prompts(config("music-prompts", captions=own, pool={"popularity": 8}), root)
    build_judged(config("pseudo-preferences"), root)
    return Store(root)


@pytest.fixture
def chain(_chain: Store, tmp_path: Path) -> Store:
    shutil.copytree(_chain.root, tmp_path / "chain")
    return Store(tmp_path / "chain")


@pytest.mark.slow
def test_a_track_leaves_what_was_made_from_it_in_three_corpora(chain: Store) -> None:
    old = {name: chain.find(name) for name in ("instrumentals", "captions", "music-prompts")}
    shots = Counter(row["clip_id"] for row in rows_of(old["music-prompts"], "shots") if row["clip_id"])
    track = next(row for row in rows_of(old["instrumentals"], "tracks") if row["track_id"] in shots)
    said = [row for row in rows_of(old["captions"], "captions") if row["clip_id"] == track["track_id"]]
    prompts = [row for row in rows_of(old["music-prompts"], "shots") if row["clip_id"] == track["track_id"]]
    hashes = {value for name, value in track.items() if "sha256" in name and value}
    words = {*hashes, *keys(said, "request_key"), *keys(prompts, "prompt_id"), f"{track['track_id']}/direct/0"}
    assert said
    assert {word for version in old.values() for _, word in traces(version, words)} == words
    withdraw(chain, "clip", track["clip_sha256"], "captions")
    new = {name: chain.find(name) for name in old}
    assert [version.name for version in new.values()] == ["v2"] * 3
    for name, version in new.items():
        assert verify(version) == []
        assert traces(version, words) == []
        assert name == "instrumentals" or "## What" in (version.folder / "README.md").read_text()
        for table in version.manifest.rows:
            cells = [value for row in rows_of(version, table) for value in row.values() if isinstance(value, str)]
            assert track["track_id"] not in cells
            if name != "music-prompts":
                assert not {row["text"] for row in said} & set(cells)
    left = keys(rows_of(old["music-prompts"], "prompts"), "prompt_id") - keys(prompts, "prompt_id")
    assert keys(rows_of(new["music-prompts"], "prompts"), "prompt_id") == left


@pytest.mark.slow
def test_a_generated_clip_leaves_and_the_judge_s_bias_is_counted_anew(chain: Store) -> None:
    old = chain.find("pseudo-preferences")
    pair = rows_of(old, "pairs")[0]
    clip = next(row for row in rows_of(old, "clips") if row["generation_id"] == pair["generation_a"])
    new = withdraw(chain, "clip", clip["clip_sha256"], "pseudo-preferences")
    assert traces(new, [clip["clip_sha256"], clip["generation_id"], pair["pair_id"]]) == []
    both = Counter(
        (row["pair_id"], row["dimension"]) for row in rows_of(new, "judgments")
    )  # a row an order, so two where both are answered
    pairs = Counter(dimension for (_, dimension), count in both.items() if count == 2)
    told = {
        row["dimension"]: row["pairs"]
        for row in rows_of(new, "bias")
        if (row["scope"], row["set"]) == ("all", "original")
    }
    assert told == pairs
    card = (new.folder / "README.md").read_text()
    assert f"| all | musicality | original | {pairs['musicality']:,} |" in card


@pytest.mark.slow
def test_an_annotator_is_found_as_their_export_names_them(tmp_path: Path) -> None:
    config = config_of(tmp_path, cmi(tmp_path, [vote(), vote(1, "ann@mail.com")]))
    store = Store(tmp_path / "store")
    old = build_votes(config, store.root)
    (key,) = withdrawal.as_tables_have_it(store, "cmi/ann@mail.com")
    assert key == rows_of(old, "votes")[1]["annotator"]
    assert withdrawal.as_tables_have_it(store, key) == (key,)
    with pytest.raises(StoreError, match="contains this annotator; write it as in the tables, or as SOURCE/ID"):
        withdrawal.search(store, ALL, "annotator", *withdrawal.as_tables_have_it(store, "other/ann@mail.com"))


@pytest.mark.slow
def test_an_annotator_is_found_under_every_salt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config of before could name the salt's variable."""
    for name in ("EARMARK_SALT", "OTHER_SALT"):
        monkeypatch.setenv(name, SALT[::-1])
    store = Store(tmp_path / "store")
    config = config_of(tmp_path, cmi(tmp_path, [vote(), vote(1, "bob")]))
    first = build_votes(config, store.root)
    manifest = first.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"salt": "EARMARK_SALT"', '"salt": "OTHER_SALT"'))
    monkeypatch.setenv("EARMARK_SALT", SALT)
    build_votes(config, store.root)
    keys_ = withdrawal.as_tables_have_it(store, "cmi/bob")
    assert keys_[1] == rows_of(first, "votes")[1]["annotator"]
    found = withdrawal.search(store, ALL, "annotator", keys_[0], others=keys_[1:])
    assert [holding.version.name for holding in found.holdings] == ["v1", "v2"]
    withdrawal.withdraw(store, ALL, found, "asked for")
    assert traces(store.find("human-preferences"), keys_) == []


@pytest.mark.slow
def test_a_rubrics_clip_leaves_with_its_instruction(tmp_path: Path) -> None:
    path = ROOT / "data/demo/instruction-rubrics.toml"
    store = Store(tmp_path / "store")
    old = build_rubrics(parse_config(ALL["instruction-rubrics"].config, read_toml(path), path), store.root)
    samples = rows_of(old, "samples")
    clip = next(row["clip_sha256"] for row in samples if row["kind"] == "swap")
    own = [row for row in samples if row["clip_sha256"] == clip]
    used = keys((row for row in samples if row["clip_sha256"] != clip), "instruction_id")
    alone = (keys(own, "instruction_id") | keys(own, "truth_id")) - used - {None}
    words = {clip, *keys(own, "sample_id"), *alone}
    assert alone
    assert {word for _, word in traces(old, words)} == words
    new = withdraw(store, "clip", clip, "instruction-rubrics")
    assert traces(new, words) == []
    instructions = {name: keys(rows_of(version, "instructions"), "instruction_id") for name, version in
                    (("old", old), ("new", new))}  # fmt: skip
    assert instructions["old"] - instructions["new"] == alone


def test_a_config_of_an_earlier_release_is_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with (
        staging(store, CORPUS.name, "0" * 16, say=print) as stage,
        pytest.raises(StoreError, match=r"an earlier release \(sources: .*\); build the corpus again"),
    ):
        recompute(Made(CORPUS, {"sources": []}, {}, "", {}), stage)


@pytest.mark.slow
def test_who_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    source = cmi(tmp_path, [vote(), vote(1, "ann@mail.com", **{"confidence_preference-musicality": "7"})])
    with (tmp_path / "cmi.jsonl").open("a") as file:
        file.write('{"user id": "bob@mail.com", "audio-path": \n')
    version = build_votes(config_of(tmp_path, source), tmp_path / "store")
    first, second = rows_of(version, "rejects")
    assert (first["reason"], second["item"]) == ("bad_value", "line 3")
    assert traces(version, ["ann@mail", "bob@mail"]) == []
    other = withdraw(
        Store(tmp_path / "store"),
        "annotator",
        next(one["id"] for one in first["made_from"] if one["kind"] == "annotator"),
    )
    assert [row["item"] for row in rows_of(other, "rejects")] == ["line 3"]


@pytest.mark.slow
def test_the_command_tells_first_and_does_it_then(tmp_path: Path) -> None:
    config = config_of(tmp_path, cmi(tmp_path, [vote(), vote(who="bob"), vote(1, "ann")]))
    store = Store(tmp_path / "store")
    old = build_votes(config, store.root)
    save_receipt(store, receipt_of(old.corpus, "v1"))
    words = ["withdraw", "--annotator", "cmi/ann", "--reason", "asked for", "--store", str(store.root), "--json"]
    assert "v1 is published to lab/c as v1: delete it" in CliRunner().invoke(app, [*words[:-1], "--dry-run"]).stdout
    told = CliRunner().invoke(app, [*words, "--dry-run"])
    assert told.exit_code == 0, told.output
    facts = json.loads(told.stdout)
    assert facts["holding"][0]["rows"]["votes"] == 2
    assert [(one["version"], one["repo"]) for one in facts["published"]] == [("v1", "lab/c")]
    assert (facts["made"], store.find(old.corpus)) == ([], old)
    assert not (store.root / "withdrawals").exists()
    done = CliRunner().invoke(app, words)
    assert json.loads(done.stdout)["made"] == [{"corpus": old.corpus, "version": "v2"}]
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0
    assert store.find(old.corpus).name == "v2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--annotator", "nobody"], "contains this annotator"),
        (["--clip", "AB" * 32], "contains this clip"),
        (["--clip", "abc"], "expected a clip's SHA-256, 64 hexadecimal digits, found 'abc'"),
        (["--annotator", "a", "--clip", "b"], "give exactly one of --annotator, --clip and --prompt"),
        (["--prompt", "p", "--corpus", "captions"], "no version of 'captions'"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    build_votes(config_of(tmp_path, cmi(tmp_path, [vote()])), tmp_path / "store")
    told = CliRunner().invoke(app, ["withdraw", *words, "--reason", "x", "--store", str(tmp_path / "store")])
    assert isinstance(told.exception, EarmarkError)
    assert said in str(told.exception)
    assert not (tmp_path / "store" / "withdrawals").exists()
