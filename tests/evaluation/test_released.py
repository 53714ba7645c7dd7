"""Published benchmark files that are measured as they are, and exports that write their layouts back."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError
from earmark.tasks.evaluation.released import released
from earmark.tasks.evaluation.samples import SamplePart, find_evaluation, select_samples
from earmark.tasks.human_preferences.released import read as read_votes
from earmark.tasks.instruction_rubrics.released import read as read_bench
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.conftest import ROOT, real_path
from tests.evaluation.test_score_files import rubric
from tests.evaluation.test_vote_scores import REAL
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote, write_jsonl
from tests.pseudo_preferences.music import write_clip

Row = dict[str, Any]


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Votes of CMI-Pref with all that a prompt may hold, battles of an arena, and rated clips; with their audio."""
    root = tmp_path_factory.mktemp("votes")
    for number in range(8):
        for side in "ab":
            write_clip(root / f"{number}-{side}.wav", 2 * number + (side == "b"), gain=0.1 + 0.1 * (side == "b"))
    sure = ["1.5", "3.0", "4.5", "3.5", ""]
    rows = [
        vote(
            number,
            lyrics=f"la {number}" if number % 2 else "",
            **{"ref-audio-path": "7-a.wav" if number > 2 else "", "confidence_preference-musicality": sure[number]},
            **{"preference-musicality": "model_b" if number % 3 else "model_a"},
        )
        for number in range(5)
    ]
    rows.append({**rows[1], "user id": "bob", "confidence_preference-musicality": "4.0"})
    battle = {"date": "2025-06-11", "system_a": "ant", "system_b": "bee", "user_pseudonym": "v1"}
    battles = [
        {**battle, "battle_uuid": f"u{n}", "prompt": f"battle {n}", "preference": "AB"[n % 2]}
        | {"audio_a": f"{n}-a.wav", "audio_b": f"{n}-b.wav"}
        for n in (5, 6)
    ]
    write_jsonl(root / "m.jsonl", battles)
    scores = [f"{n}-a.wav,{1.5 + n / 4},{4.5 - n / 8},a tune with {n} drums,sys{n % 2}" for n in range(4)]
    (root / "pam.csv").write_text("\n".join(["file,OVL,REL,text,system", *scores]))
    arena = {"name": "arena", "format": "music-arena", "files": ["m.jsonl"]}
    pam = {"name": "pam", "format": "pam", "files": ["pam.csv"], "columns": {"system": "system"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        return build_votes(config_of(root, cmi(root, rows, split="test"), arena, pam, audio="embed"), root / "store")


def earmark(store: Path, *words: str | Path, code: int = 0) -> Any:
    """What the command prints, as JSON, or its one line of error."""
    said = CliRunner().invoke(app, [*map(str, words), "--store", str(store), "--json"])
    if code == 0:
        assert said.exit_code == 0, said.output
        return json.loads(said.stdout)
    assert said.exit_code == code
    return said.exception if isinstance(said.exception, EarmarkError) else said.output


def metrics(facts: Row) -> Row:
    return {name: one["value"] for name, one in facts["rows"][0]["metrics"].items()}


def samples_of(version: Version, corpus: Any, evaluation: str) -> list[Row]:
    """What an evaluation asks about, without names that depend on where clips lie."""
    with select_samples(version, corpus, find_evaluation(corpus, evaluation), SamplePart("all")) as samples:
        wanted = [
            name for name in samples.columns if name not in ("a_clip", "b_clip", "clip", "cluster", "id", "split")
        ]
        return sorted((row for rows in samples.batches(100, wanted) for row in rows), key=repr)


PAIRS = ("cmi-pref-musicality", "cmi-pref-alignment", "music-arena")


@pytest.mark.slow
def test_the_benchmark_is_written_back_as_it_is_read(votes: Version, tmp_path: Path) -> None:
    store, out = votes.folder.parent.parent, tmp_path / "out"
    earmark(store, "export", "human-preferences", "--for", "cmi-rewardbench", "--view", "benchmark", "--out", out)
    lines = [json.loads(line) for line in (out / "all_test.jsonl").read_text().splitlines()]
    assert len(lines) == 6 + 2 + 4  # votes, battles, rated clips
    assert {line["source"] for line in lines} == {"cmi-arena-annotation", "Music Arena", "PAM"}
    assert all((out / line["audio-path"]).is_file() for line in lines)
    corpus = find_corpus("human-preferences")
    with released(out / "all_test.jsonl", "cmi-rewardbench", Store(store), ()) as (version, known):
        for name in (*PAIRS, "pam-musicality", "pam-alignment"):
            ours = samples_of(votes, corpus, name)
            theirs = samples_of(version, known, name)
            assert len(ours) > 1
            if name.startswith("cmi"):
                assert {row["vocals"] for row in theirs} == {"vocal", "instrumental"}
            # People are hashed once more; which clip a model is shown first goes by the vote, since a file names no
            # comparison.
            other = {"annotator": None, "swapped": None}
            assert [{**row, **other} for row in theirs] == [{**row, **other} for row in ours]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cmi-pref-musicality", "music-arena", "pam-musicality"])
def test_a_model_is_measured_on_the_file_as_on_the_version(votes: Version, tmp_path: Path, name: str) -> None:
    store, out = votes.folder.parent.parent, tmp_path / "out"
    earmark(store, "export", "human-preferences", "--for", "cmi-rewardbench", "--view", "benchmark", "--out", out)
    judge = "builtin:music-clip-1" if name.startswith("pam") else "builtin:music-pair-2"
    asked = ("-e", name, "-a", judge)
    on_version = earmark(store, "eval", "run", "human-preferences", *asked)
    (moved := tmp_path / "moved").mkdir()
    (out / "all_test.jsonl").rename(moved / "all_test.jsonl")
    file = ("eval", "run", moved / "all_test.jsonl", "--layout", "cmi-rewardbench")
    on_file = earmark(tmp_path / "fresh", *file, *asked, "--audio-root", out)
    assert metrics(on_file) == metrics(on_version)
    assert on_file["corpus"] == "cmi-rewardbench"
    assert Path(on_file["folder"]).parent.parent.name == "cmi-rewardbench"
    again = earmark(tmp_path / "fresh", *file, *asked, "--audio-root", out)
    assert again["manifest_sha256"] == on_file["manifest_sha256"]
    lost = earmark(tmp_path / "none", *file, *asked, code=1)  # without its folder no clip is there
    assert "no sample has an answer; most for 'no_media'" in str(lost)


@pytest.mark.slow
def test_ratings_of_clips_that_are_not_at_hand_are_written_and_read_as_samples(votes: Version, tmp_path: Path) -> None:
    """An export leaves the path of such a clip empty; a model is asked about the others, and the rest is counted."""
    scores = [f"{n}-a.wav,{1.5 + n / 4},{4.5 - n / 8},a tune with {n} drums,sys{n % 2}" for n in range(4)]
    (tmp_path / "pam.csv").write_text("\n".join(["file,OVL,REL,text,system", *scores]))
    pam = {"name": "pam", "format": "pam", "files": ["pam.csv"], "columns": {"system": "system"}}
    version = build_votes(config_of(tmp_path, pam, audio="none"), tmp_path / "store")
    out, told = tmp_path / "out", ("--layout", "cmi-rewardbench", "-e", "pam-musicality", "-a", "builtin:music-clip-1")
    export = ("export", "human-preferences", "--for", "cmi-rewardbench", "--view", "benchmark", "--out")
    earmark(tmp_path / "store", *export, out)
    file, corpus = out / "all_test.jsonl", find_corpus("human-preferences")
    assert {json.loads(line)["audio-path"] for line in file.read_text().splitlines()} == {""}
    with released(file, "cmi-rewardbench", Store(tmp_path / "fresh"), ()) as (read, known):
        for name in ("pam-musicality", "pam-alignment"):
            assert samples_of(read, known, name) == samples_of(version, corpus, name)
            assert len(samples_of(read, known, name)) == 4
    assert "no sample has an answer; most for 'no_media'" in str(
        earmark(tmp_path / "fresh", "eval", "run", file, *told, code=1)
    )
    heard = tmp_path / "heard"
    earmark(votes.folder.parent.parent, *export, heard)
    lines = [json.loads(line) for line in (heard / "all_test.jsonl").read_text().splitlines()]
    next(line for line in lines if line["source"] == "PAM")["audio-path"] = ""
    write_jsonl(heard / "all_test.jsonl", lines)
    facts = earmark(tmp_path / "fresh", "eval", "run", heard / "all_test.jsonl", *told)
    assert (facts["samples"], facts["answered"], facts["left_out"]) == (3, 3, {"no_media": 1})


@pytest.mark.slow
def test_a_bench_of_rubrics_is_measured_as_it_was_exported(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    version = rubric(tmp_path / "store")
    out = tmp_path / "out"
    earmark(tmp_path / "store", "export", "instruction-rubrics", "--for", "jsonl", "--view", "bench", "--out", out)
    (file,) = out.glob("*.jsonl")
    asked = ("-a", "builtin:rubric-judge-1", "--mode", "array", "--split", "all")
    ours = earmark(tmp_path / "store", "eval", "run", "instruction-rubrics", *asked)
    told = ("--layout", "anyaudio-judge-bench")
    theirs = earmark(tmp_path / "fresh", "eval", "run", file, *told, *asked)
    assert theirs["samples"] == ours["samples"] == len(file.read_text().splitlines())
    assert metrics(theirs) == metrics(ours)
    groups = {row["value"] for row in theirs["rows"] if row["group"] == "kind"}
    assert groups == {json.loads(line)["type"] for line in file.read_text().splitlines()}  # in the words of the bench
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["audio"] = {"bytes": (out / row["audio"]).read_bytes(), "path": Path(row["audio"]).name}
    for language in {row["language"] for row in rows}:
        folder = tmp_path / "hub" / language
        folder.mkdir(parents=True)
        own = [{name: value for name, value in row.items() if name != "language"} for row in rows
               if row["language"] == language]  # fmt: skip
        for number in range(2):
            pq.write_table(pa.Table.from_pylist(own[number::2]), folder / f"test-0000{number}-of-00002.parquet")
    embedded = earmark(tmp_path / "hubs", "eval", "run", tmp_path / "hub", *told, *asked)
    assert metrics(embedded) == metrics(ours)
    assert version.name == "v1"


@pytest.mark.slow
def test_a_bench_is_written_in_the_released_layout_and_read_back(tmp_path: Path) -> None:
    """Configs `en` and `zh` beside one folder of clips, in the release's columns and words."""
    rubric(tmp_path / "store")
    out, chinese = tmp_path / "out", tmp_path / "zh"
    export = ("export", "instruction-rubrics", "--for", "anyaudio-judge-bench")
    earmark(tmp_path / "store", *export, "--out", out)
    earmark(tmp_path / "store", *export, "--view", "bench-asked-in-zh", "--out", chinese)
    asked = ("-a", "builtin:rubric-judge-1", "--mode", "array", "--split", "all")
    ours = earmark(tmp_path / "store", "eval", "run", "instruction-rubrics", *asked)
    theirs = earmark(tmp_path / "fresh", "eval", "run", out, "--layout", "anyaudio-judge-bench", *asked)
    assert metrics(theirs) == metrics(ours)
    rows: dict[str, list[dict[str, Any]]] = {}
    for language in ("en", "zh"):
        loaded = load_dataset(str(out), language, cache_dir=str(tmp_path / "cache"))
        rows[language] = [row for split in loaded.values() for row in split]
        assert set(rows[language][0]) == {"uuid", "audio", "caption", "label", "type", "subset", "rubric"}
        assert {row["label"] for row in rows[language]} == {"yes", "no"}
        assert {row["type"] for row in rows[language]} == {"pos_gemini", "neg_swap", "neg_change"}  # all were heard
        assert {row["subset"] for row in rows[language]} == {"real"}
        assert all((out / row["audio"]["path"]).is_file() for row in rows[language])
    assert {row["uuid"] for row in rows["en"]} == {row["uuid"] for row in rows["zh"]}
    by_uuid = {row["uuid"]: row["rubric"] for row in rows["zh"]}
    released = load_dataset(str(chinese), "en", cache_dir=str(tmp_path / "cache"))
    for row in (row for split in released.values() for row in split):
        assert [item["question"] for item in row["rubric"]] == [item["question"] for item in by_uuid[row["uuid"]]]


@pytest.mark.slow
def test_the_published_votes_and_scores_say_what_was_counted_by_hand(tmp_path: Path) -> None:
    path = real_path(REAL)
    scores = {}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        for clip, end in (("audio-path", ""), ("audio2", "_b")):
            given = (row[f"predicted_{name}{end}"] for name in ("musicality", "text-music alignment"))
            scores[row[clip]] = ",".join(map(str, (row[clip], *given)))
    (tmp_path / "clips.csv").write_text("\n".join(["clip,musicality,alignment", *scores.values()]))
    told = ("--layout", "cmi-rewardbench", "--scores")
    by_clip = earmark(tmp_path / "store", "eval", "run", path, *told, tmp_path / "clips.csv")
    assert {facts["evaluation"] for facts in by_clip} == {"cmi-pref-musicality", "cmi-pref-alignment"}
    given = earmark(tmp_path / "store", "eval", "run", path, *told, path)  # the file holds its authors' scores itself
    tables = {facts["evaluation"]: facts for facts in given}
    counted = {"cmi-pref-musicality": (0.780, 0.781), "cmi-pref-alignment": (0.738, 0.740)}
    assert tables.keys() == counted.keys()
    for name, facts in tables.items():
        said = metrics(facts)
        assert (said["accuracy"], said["accuracy_tie_half"]) == (counted[name][0], counted[name][1])
        for group, size in (("modality", 125), ("vocals", 250)):
            assert {
                row["samples"] for row in facts["rows"] if row["group"] == group and row["value"] != "mean of groups"
            } == {size}
    bands = {row["value"]: row for row in tables["cmi-pref-musicality"]["rows"] if row["group"] == "confidence_band"}
    shares = {name: (row["samples"], round(row["metrics"]["accuracy"]["value"], 3)) for name, row in bands.items()}
    assert shares == {"<3": (66, 0.667), "3": (128, 0.750), ">3": (306, 0.817)}


def test_results_of_the_benchmarks_own_script_are_read(tmp_path: Path) -> None:
    """Votes by the scores of their two clips, ratings by one; an arena's battle by musicality, as the script does."""
    line = {"prompt": "a tune", "prompt id": 1, "lyrics": "", "ref-audio-path": "", "audio2": ""}
    names = ("predicted_musicality", "predicted_text-music alignment")
    rows = [
        vote(
            place,
            source="cmi-arena-annotation",
            **{f"{name}{end}": value + place for end, value in (("", 1.0), ("_b", 2.5)) for name in names},
        )
        for place in range(4)
    ]
    arena = {"source": "Music Arena", "preference": "model_a", "audio2": "month/b.wav", names[1]: 0, f"{names[1]}_b": 9}
    rows.append({**line, **arena, "audio-path": "month/a.wav", names[0]: 5.0, f"{names[0]}_b": 4.0})
    rows += [
        {**line, "source": "MusicEval", "audio-path": f"clip{place}.wav", "musicality": place, names[0]: 3.0 * place}
        for place in range(1, 5)
    ]
    results = tmp_path / "results.jsonl"
    write_jsonl(results, rows)
    write_jsonl(
        tmp_path / "all_test.jsonl",
        [{key: one for key, one in row.items() if key[:10] != "predicted_"} for row in rows],
    )
    told = ("--layout", "cmi-rewardbench", "--scores", results)
    given = earmark(tmp_path / "store", "eval", "run", tmp_path / "all_test.jsonl", *told)
    tables = {facts["evaluation"]: metrics(facts) for facts in given}
    said = [row["preference-musicality"] for row in rows[:4]]
    assert tables["cmi-pref-musicality"]["accuracy"] == pytest.approx(said.count("model_b") / 4)
    assert tables["music-arena"]["accuracy"] == 1.0
    assert tables["musiceval-musicality"]["srcc"] == pytest.approx(1.0)
    write_jsonl(results, [*rows, {**rows[0], names[0]: 7.0}])
    said = earmark(tmp_path / "store", "eval", "run", tmp_path / "all_test.jsonl", *told, code=1)
    assert "have other scores in an earlier row" in str(said)


def test_a_benchmark_file_reaches_no_clip_outside_its_folders(tmp_path: Path) -> None:
    for name in ("secret.wav", "bench/inside.wav"):
        write_clip(tmp_path / name, seed=len(name))
    (tmp_path / "bench" / "link.wav").symlink_to(tmp_path / "secret.wav")
    names = ["inside.wav", "link.wav", "../secret.wav", "x/../../secret.wav", str(tmp_path / "secret.wav")]
    row = {"caption": "a drum", "label": "yes", "type": "pos", "subset": "s", "rubric": []}
    file = tmp_path / "bench" / "test.jsonl"
    write_jsonl(file, [{"uuid": f"u{place}", "audio": name, **row} for place, name in enumerate(names)])
    with released(file, "anyaudio-judge-bench", Store(tmp_path / "store"), [tmp_path / "bench"]) as (version, _):
        samples = pq.read_table(version.folder / "samples.parquet", columns=["sample_id", "clip_sha256"]).to_pylist()
    assert [one["sample_id"] for one in samples if one["clip_sha256"]] == ["u0"]


def test_scores_of_the_benchs_own_script_are_measured_by_the_guides_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three are right in English by the script's bound, one in Chinese; one sample has no score."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "store"))
    guide = (ROOT / "flows/topics/instruction_rubrics/use.md").read_text("utf-8")
    commands = guide.partition("`evaluate_benchmark.py`")[2].split("```")[1].strip().splitlines()
    (tmp_path / "eval_outputs").mkdir()
    about = {"audio": None, "caption": "a dog", "type": "pos", "subset": "mix", "rubric": []}
    labels, scores = ("yes", "no", "yes"), {"en": (0.9, 0.7, 0.7), "zh": (0.7, 0.2, float("nan"))}
    for language, given in scores.items():
        folder = tmp_path / "AnyAudio-Judge-Bench" / language
        folder.mkdir(parents=True)
        write_jsonl(folder / "test.jsonl", [{"uuid": f"u{n}", "label": one, **about} for n, one in enumerate(labels)])
        rows = [{"uuid": f"u{n}", "label": labels[n], "score": one, "n_rubric": 2} for n, one in enumerate(given)]
        (tmp_path / f"eval_outputs/records_{language}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    for command in commands:
        said = CliRunner().invoke(app, [*shlex.split(command)[1:], *(["--json"] if "eval run" in command else [])])
        assert said.exit_code == 0, said.output
    facts = json.loads(said.stdout)
    assert (facts["samples"], facts["answered"]) == (6, 5)
    by = {row["value"]: row["metrics"] for row in facts["rows"] if row["group"] == "language"}
    found = {language: one["accuracy_threshold"]["value"] for language, one in by.items()}
    assert found == pytest.approx({"en": 2 / 3, "zh": 1 / 3})


def test_samples_of_one_clip_depend_on_each_other_without_the_clips_too(tmp_path: Path) -> None:
    """Four clips of ten samples each, of which a model is wrong about one clip: as it is with the clips at hand."""
    row = {"type": "pos", "subset": "mix", "rubric": []}
    lines = [
        {"uuid": f"u{n}", "caption": f"dog {n}", "audio": f"{n // 10}.wav", "label": ("yes", "no")[n % 2], **row}
        for n in range(40)
    ]
    write_jsonl(tmp_path / "en.jsonl", lines)
    write_jsonl(tmp_path / "s.jsonl", [{"id": f"u{n}-en", "score": (n + (n // 10 != 2)) % 2} for n in range(40)])
    command = ("eval", "run", tmp_path / "en.jsonl", "--layout", "anyaudio-judge-bench", "-e", "alignment", "--scores")
    without = earmark(tmp_path / "store", *command, tmp_path / "s.jsonl")
    for number in range(4):
        write_clip(tmp_path / f"{number}.wav", number)
    beside = earmark(tmp_path / "store", *command, tmp_path / "s.jsonl")
    found = [facts["rows"][0]["metrics"]["accuracy"] for facts in (without, beside)]
    assert found[0] == pytest.approx(found[1])
    assert found[0]["value"] == 0.75
    assert found[0]["high"] - found[0]["low"] > 0.7  # four clips, not forty samples


@pytest.mark.parametrize(
    ("first", "second"), [("cmi-arena-annotation", "PAM"), ("Music Arena", "cmi-arena-annotation")]
)
def test_ids_that_restart_in_a_set_are_named_with_their_lines(tmp_path: Path, first: str, second: str) -> None:
    """No sample would be there twice, but each vote would stand for a pair of the arena and one of CMI-Pref."""
    about = {"preference": "a", "musicality": 3.0}
    sets = (first, first, second, second)
    rows = [vote(at, id=name, source=sets[at], **about) for at, name in enumerate((7, 8, 9, 8))]
    write_jsonl(path := tmp_path / "all_test.jsonl", rows)
    with pytest.raises(EarmarkError, match=r"lines 2 and 4: .* found '8' in both; write the set before it, such as"):
        read_votes(path, tmp_path)
    write_jsonl(path, [{**row, "id": None} for row in rows])
    assert len({row["sample_id"] for row in read_votes(path, tmp_path)["benchmark"]}) > len(rows)


def faulty() -> Iterator[tuple[str, Row, str]]:
    """A layout, what a good line gets instead, and what is said of it."""
    yield "cmi-rewardbench", {"source": "elsewhere"}, "line 1: expected a source such as PAM, MusicEval, .*'elsewhere'"
    yield "cmi-rewardbench", {"preference-musicality": "model_c"}, "line 1: expected a, b or tie .* found 'model_c'"
    yield "cmi-rewardbench", {"source": "PAM", "musicality": "loud"}, "expected a number as musicality, found 'loud'"
    yield "cmi-rewardbench", {"source": "PAM"}, "expected a number as musicality or text-music alignment, found none"
    yield "anyaudio-judge-bench", {}, "uuid"
    yield "cmi-reward-bench", {}, "no layout 'cmi-reward-bench'.*cmi-rewardbench"


@pytest.mark.parametrize(("layout", "values", "says"), list(faulty()))
def test_a_file_of_another_form_is_one_line(tmp_path: Path, layout: str, values: Row, says: str) -> None:
    write_jsonl(tmp_path / "all_test.jsonl", [vote(0, **{"source": "cmi-arena-annotation", **values})])
    with (
        pytest.raises(EarmarkError, match=says) as raised,
        released(tmp_path / "all_test.jsonl", layout, Store(tmp_path / "store"), ()),
    ):
        pass
    assert "\n" not in str(raised.value)


def test_folder_or_config_tells_the_language_where_captions_quote_the_other(tmp_path: Path) -> None:
    said = {"en": ['A woman says "你好" calmly.', "你好"], "zh": ["一位女士平静地说 hello", "Hello"]}
    row = {"uuid": "u1", "audio": {"path": "a.flac"}, "label": "yes", "type": "pos_gemini", "subset": "speech",
           "rubric": [{"dimension": "性别", "question": "说话人是否为女性？", "basis": ""}]}  # fmt: skip
    places = ("{}/test.jsonl", "data/{}/0.jsonl", "data/test-{}.jsonl", "bench_{}_00000.jsonl")
    for language, captions in said.items():
        for place in places:
            (file := tmp_path / place.format(language)).parent.mkdir(parents=True, exist_ok=True)
            write_jsonl(file, [{**row, "caption": one, "uuid": f"{place}{at}"} for at, one in enumerate(captions)])
            held = read_bench(file, tmp_path)  # the file alone
            assert {one["language"] for rows in held.values() for one in rows} == {language}
    both = read_bench(tmp_path, tmp_path)  # every id in both languages
    for rows in both.values():
        assert Counter(one["language"] for one in rows) == {"en": 8, "zh": 8}
    assert [one["instruction"] for one in both["samples"] if one["language"] == "zh"] == [*said["zh"]] * 4
    (unnamed := tmp_path / "x").mkdir()
    captions = ["A dog barks.", "你好", "A calm voice."]
    write_jsonl(unnamed / "test.jsonl", [{**row, "caption": one, "uuid": one} for one in captions])
    assert {one["language"] for one in read_bench(unnamed / "test.jsonl", tmp_path)["samples"]} == {"en"}
