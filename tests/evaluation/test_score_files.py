"""Files of scores mean the clips as the published tables name them: the truth gives 1, its mirror 0."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from earmark.flows.command.running import read_config
from earmark.schemas.critiques import Critiques
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.evaluations import Evaluation, Examinee
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.questions import Audio, Json, Text, YesNo
from earmark.schemas.registry import load
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.annotation.request import Answer, Report, Request
from earmark.tasks.evaluation import judging, reading
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.evaluation.scores import read_table
from earmark.tasks.pipeline.flow import build_version
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests import builds
from tests.annotation.conftest import LocalServer
from tests.before.fixture import CORPORA
from tests.builds import rows_of
from tests.conftest import ROOT, made_once
from tests.human_preferences.votes import SALT, build_votes
from tests.instruction_rubrics import rubrics
from tests.pseudo_preferences import music
from tests.score_questions import questions
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer

DEMO = ROOT / "data/demo"
Row = dict[str, Any]


def human(root: Path) -> Version:
    """Votes and ratings of every layout, a sample a pair: about votes that contradict each other no model is right."""
    path = DEMO / "human-preferences.toml"
    values = {**read_toml(path), "unit": "comparison"}
    return build_votes(parse_config(HumanPreferences, values, path), root)


def pseudo(root: Path) -> Version:
    """Labels of a judge that listens."""
    music.make_pool(root / "pool", 6)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        return music.build_judged(music.config_of(root / "pool", server.base_url), root)


def rubric(root: Path) -> Version:
    """Samples that follow their instruction, and samples that do not."""
    with LocalServer(Faults()) as server:
        server.answer = rubrics.rubric_answer
        source = rubrics.write_captions(root, "real", map(rubrics.caption, range(8)))
        config = rubrics.config_of(root, source, base_url=server.base_url, bench_share=0.0)
        return rubrics.build_rubrics(config, root)


def exam(root: Path) -> Version:
    """Multiple-choice questions, whose images are there in other forms, too."""
    (omr := root / "omr").mkdir(parents=True)
    for number in range(8):
        image = hashlib.sha256(questions.picture(number)).hexdigest()
        for ending in ("txt", "abc", "musicxml"):
            (omr / f"{image}.{ending}").write_text(f"what image {number} shows")
    config = questions.config_of(root, transcripts="omr")
    return questions.build_questions(config, root, [questions.thread(number) for number in range(8)])


def rated(root: Path) -> Version:
    """Pairs and triplets of rated clips, and what a critic wrote of some."""
    config = builds.read_config(DEMO / "mos-preferences-audio.toml")
    triplets = config.triplets.model_copy(update={"count": 20, "splits": ("train",)})
    critiques = Critiques(annotator="builtin:speech-critique-1", clips=6, pairs=12, tries=1)
    return builds.build_version(config.model_copy(update={"triplets": triplets, "critiques": critiques}), root)


def rated_apart(factory: pytest.TempPathFactory) -> Version:
    """The same, built once in a test run, in a store of the caller's own."""
    made = made_once(factory, "rated-store", rated)
    return Store(Path(shutil.copytree(made, factory.mktemp("rated") / "store"))).find("mos-preferences")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of pairs of rated clips, for tests that only read it."""
    return rated_apart(tmp_path_factory)


def of_the_demo(name: str, root: Path) -> Version:
    """The demo's version of a corpus."""
    corpus = find_corpus(name)
    return build_version(corpus, load(corpus.flow).story, read_config(corpus, DEMO / f"{name}.toml"), root)[0]


BUILDERS: dict[str, Callable[[Path], Version]] = {
    "mos-preferences": rated,
    "pseudo-preferences": pseudo,
    "human-preferences": human,
    "instruction-rubrics": rubric,
    "score-questions": exam,
    **{name: partial(of_the_demo, name) for name in ("captions", "instrumentals", "music-prompts")},
}


SLOW_BUILDERS = BUILDERS.keys() - {"pseudo-preferences", "score-questions"}

# Evaluations with the same label for every row: the table of its rows, what names a row, and the label.
CLAIMED: dict[str, tuple[str, tuple[str, ...], float]] = {
    "critiques": ("critiques", ("sample_id",), 1.0),
    "comparisons": ("paired_critiques", ("pair_id",), 1.0),
    "caption": ("captions", ("clip_id", "pipeline", "segment"), 1.0),
    "voice": ("tracks", ("track_id",), 0.0),
    "prompt": ("prompts", ("prompt_id",), 1.0),
}


def of_pair(sample: str, clips: tuple[str, str], better: str | None, names: tuple[str, str]) -> Row:
    """Scores of two clips: 2 for the better, 1 for the other, equal ones for a tie."""
    return {"id": sample, **{name: 1 + (clip == better) for name, clip in zip(names, clips, strict=True)}}


def legs(triplets: list[Row]) -> list[tuple[str, tuple[str, str]]]:
    """Each two clips of each triplet, the one with the higher MOS first."""
    return [
        (f"{row['triplet_id']}-{two}", (row[f"{two[0]}_id"], row[f"{two[1]}_id"]))
        for row in triplets
        for two in ("ab", "bc", "ac")
    ]


def truth(version: Version, evaluation: str) -> list[Row]:
    """What the published tables say, in the form of a file of scores, found with nothing of the evaluations' own."""
    table = {name: rows_of(version, name) for name in version.manifest.rows}
    if CLAIMED.get(evaluation, ("",))[0] in table:  # one of score-questions is called caption, too
        name, key, label = CLAIMED[evaluation]
        return [{"id": ":".join(str(row[part]) for part in key), "score": label} for row in table[name]]
    match version.corpus:
        case "mos-preferences":
            sides = ("score_chosen", "score_rejected")
            if evaluation == "cycles":
                return [of_pair(name, clips, clips[0], sides) for name, clips in legs(table["triplets"])]
            if evaluation == "mos":
                return [{"id": row["sample_id"], "score": row["mos"]} for row in table["ratings"]]
            couples = [(row["pair_id"], (row["chosen_id"], row["rejected_id"])) for row in table["pairs"]]
            mos = {row["sample_id"]: row["mos"] for row in table["ratings"]}
            return [of_pair(name, clips, max(clips, key=mos.__getitem__), sides) for name, clips in couples]
        case "pseudo-preferences":
            labels = [row for row in table["labels"] if row[evaluation] is not None]
            return [
                of_pair(
                    row["pair_id"],
                    (row["generation_a"], row["generation_b"]),
                    row.get(f"generation_{row[evaluation]}"),
                    ("score_a", "score_b"),
                )
                for row in labels
            ]
        case "human-preferences":
            task, _, dimension = evaluation.rpartition("-")
            if evaluation == "music-arena":
                task, dimension = evaluation, "overall"
            rows = [row for row in table["benchmark"] if (row["task"], row["dimension"]) == (task, dimension)]
            if rows[0]["preference"] is None:
                return [{"id": row["sample_id"], "score": row["score"]} for row in rows]
            return [
                of_pair(
                    row["sample_id"],
                    (row["clip_a"], row["clip_b"]),
                    row[f"clip_{row['preference']}"],
                    ("score_a", "score_b"),
                )
                for row in rows
            ]
        case "instruction-rubrics" if evaluation == "items":
            return [
                {"id": f"{row['sample_id']}-{row['item']}-{row['language']}", "score": float(row["answer"])}
                for row in table["labels"]
            ]
        case "instruction-rubrics":
            languages = {(row["instruction_id"], row["language"]) for row in table["items"]}
            return [
                {"id": f"{row['sample_id']}-{language}", "score": float(row["follows"])}
                for row in table["samples"]
                for instruction, language in languages
                if (instruction, language) == (row["instruction_id"], row["language"])
            ]
        case _:
            return [{"id": row["question_id"], "choice": row["truth_letter"]} for row in table["questions"]]


def mirrored(row: Row, kind: str) -> Row:
    """The opposite: the other clip (one of the two for a tie), no for yes, the lowest rating for the highest."""
    match kind:
        case "choice":
            return {**row, "choice": "B" if row["choice"] == "A" else "A"}
        case "preference":
            first, second = (name for name in row if name.startswith("score_"))
            return {**row, first: row[second], second: row[first] if row[first] != row[second] else 0}
        case "yes_no":
            return {**row, "score": 1 - row["score"]}
    return {**row, "score": -row["score"]}


def write(path: Path, rows: list[Row]) -> Path:
    """A CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def measure(version: Version, rows: list[Row], wish: MeasurementOptions, folder: Path) -> dict[str, Any]:
    """The facts of an evaluation by a file of these rows."""
    path = write(folder / "scores.csv", rows)
    store = Store(version.folder.parents[1])
    facts, _ = reading.read(version, find_corpus(version.corpus), store, path, wish, folder / "out")
    return facts


def measure_clips(
    version: Version, rows: list[Row], wish: MeasurementOptions, folder: Path
) -> dict[str, dict[str, Any]]:
    """The facts of each evaluation that a file of clips' scores feeds, by name."""
    path = write(folder / "clips.csv", rows)
    store = Store(version.folder.parents[1])
    tables, _ = reading.read_clips(version, find_corpus(version.corpus), store, path, wish, folder / "clips")
    return {facts["evaluation"]: facts for facts, _ in tables}


def metrics_of(facts: dict[str, Any], group: str | None = None, value: str = "all") -> dict[str, float]:
    """The metrics of a row of the table."""
    (row,) = [row for row in facts["rows"] if (row["group"], row["value"]) == (group, value)]
    return {name: metric["value"] for name, metric in row["metrics"].items()}


def expect(facts: dict[str, Any], best: bool, group: str | None = None, value: str = "all") -> None:
    """Every metric is as good as it can be, or as bad."""
    for name, got in metrics_of(facts, group, value).items():
        if facts["evaluation"] in CLAIMED and name != "accuracy":
            assert got is None, "one label alone has no other figure"
            continue
        if name == "mse":
            assert (got == 0) == best
            continue
        worst = -1.0 if name in ("lcc", "srcc", "ktau") else 0.0
        good = best != (name == "eer")
        assert got == pytest.approx(1.0 if good else worst), (facts["evaluation"], name)


class Oracle:
    """A model that knows by the clips that it hears, and the words that it reads, what is right; or the opposite."""

    spent_usd = 0.0

    def __init__(self, better: dict[tuple[str, ...], str], mirror: bool) -> None:
        self._better, self._mirror = better, mirror

    def ask(self, requests: list[Request]) -> Report:
        return Report([Answer(request.key, self._value(request)) for request in requests], 0, 0, 0, 0, 0, 0, 0, 0.0)

    def _value(self, request: Request) -> Any:
        parts = [part for message in request.messages for part in message.parts]
        clips = tuple(part.sha256 for part in parts if isinstance(part, Audio))
        if isinstance(request.ask, YesNo):
            words = "".join(part.text for part in parts if isinstance(part, Text))
            yes = any(clips == key[:1] and key[1] in words and said == "yes" for key, said in self._better.items())
            return {"p_yes": float(yes != self._mirror)}
        first, second = clips[-2:]
        if (first, second) in self._better:
            side = self._better[first, second]
        else:
            side = {"A": "B", "B": "A", "tie": "tie"}[self._better[second, first]]
        if self._mirror:
            side = {"A": "B", "B": "A", "tie": "A"}[side]
        return (
            dict.fromkeys(json.loads(request.ask.schema)["properties"], side) if isinstance(request.ask, Json) else side
        )


def knowing(version: Version, evaluation: str, rows: list[Row]) -> dict[tuple[str, ...], str]:
    """What an oracle knows: of two clips the better, of a clip and an item whether it is so."""
    if version.corpus == "instruction-rubrics":
        texts = {(r["instruction_id"], r["item"], r["language"]): r["question"] for r in rows_of(version, "items")}
        about = {row["sample_id"]: row["instruction_id"] for row in rows_of(version, "samples")}
        return {
            (row["clip_sha256"], texts[about[row["sample_id"]], row["item"], row["language"]]): "yes"
            for row in rows_of(version, "labels")
            if row["answer"]
        }
    (declared,) = [one for one in find_corpus(version.corpus).evaluations if one.name == evaluation]
    table, key = declared.clips or ("", "")
    sha = {row[key]: row["clip_sha256"] for row in rows_of(version, table)}
    clips = {row["id"]: names for row, names in zip(rows, clips_named(version, evaluation), strict=True)}
    known = {}
    for row in rows:
        first, second = (row[name] for name in row if name.startswith("score_"))
        known[sha[clips[row["id"]][0]], sha[clips[row["id"]][1]]] = "tie" if first == second else "AB"[second > first]
    return known


def clips_named(version: Version, evaluation: str) -> list[tuple[str, ...]]:
    """The clips of each row of `truth`, as the published tables name them."""
    match version.corpus:
        case "mos-preferences" if evaluation == "cycles":
            return [clips for _, clips in legs(rows_of(version, "triplets"))]
        case "mos-preferences" if evaluation == "mos":
            return [(row["sample_id"],) for row in rows_of(version, "ratings")]
        case "mos-preferences":
            return [(row["chosen_id"], row["rejected_id"]) for row in rows_of(version, "pairs")]
        case "pseudo-preferences":
            labels = [row for row in rows_of(version, "labels") if row[evaluation] is not None]
            return [(row["generation_a"], row["generation_b"]) for row in labels]
    task, _, dimension = evaluation.rpartition("-")
    wanted = (evaluation, "overall") if evaluation == "music-arena" else (task, dimension)
    rows = [row for row in rows_of(version, "benchmark") if (row["task"], row["dimension"]) == wanted]
    return [(row["clip_a"], row["clip_b"]) if row["clip_b"] else (row["clip_a"],) for row in rows]


def test_every_corpus_of_the_release_with_evaluations_is_here() -> None:
    assert set(BUILDERS) == {name for name in CORPORA if find_corpus(name).evaluations}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one in SLOW_BUILDERS else ()) for one in BUILDERS]
)
def test_the_truth_scores_1_and_its_mirror_0(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through each form that says the truth: rows of samples, a model that is asked, scores of clips, a baseline."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    version = BUILDERS[name](tmp_path / "store")
    for evaluation in find_corpus(name).evaluations:
        rows = truth(version, evaluation.name)
        wish = MeasurementOptions(evaluation.name, part=SamplePart("all"))
        facts = measure(version, rows, wish, tmp_path)
        expect(facts, best=True)
        expect(facts, best=True, group="baseline", value="oracle")
        expect(measure(version, [mirrored(row, evaluation.kind) for row in rows], wish, tmp_path), best=False)
        if evaluation.clips:
            through_clips(version, evaluation, rows, tmp_path)
        if evaluation.kind == "preference" or name == "instruction-rubrics":
            asked(version, evaluation, rows, tmp_path, monkeypatch)


def through_clips(version: Version, evaluation: Evaluation, rows: list[Row], folder: Path) -> None:
    """Scores of clips reach what they can: everything, where no two samples contradict each other."""
    named = clips_named(version, evaluation.name)
    wish = MeasurementOptions(evaluation.name, part=SamplePart("all"))
    if evaluation.kind == "scalar":
        rated = {clips[0]: row["score"] for row, clips in zip(rows, named, strict=True)}
        for sign in (1, -1):
            listed = [{"clip": clip, "score": sign * score} for clip, score in rated.items()]
            expect(measure_clips(version, listed, wish, folder)[evaluation.name], best=sign > 0)
        return
    if version.corpus == "mos-preferences":
        rated = {row["sample_id"]: row["mos"] for row in rows_of(version, "ratings")}
        for sign in (1, -1):
            listed = [{"clip": clip, "quality": sign * score} for clip, score in rated.items()]
            facts = measure_clips(version, listed, wish, folder)[evaluation.name]
            assert facts.get("cycles", {"cycles": 0})["cycles"] == 0
            assert facts["reachable"] == {"accuracy": 1.0, "exact": True}
            expect(facts, best=sign > 0)
        return
    clips = sorted({clip for both in named for clip in both})
    listed = [{"clip": clip, "score": place} for place, clip in enumerate(clips)]
    facts = measure_clips(version, listed, wish, folder)[evaluation.name]
    assert metrics_of(facts)["accuracy"] <= facts["reachable"]["accuracy"]


def asked(
    version: Version, evaluation: Evaluation, rows: list[Row], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that knows is right however the clips are ordered."""
    store, known = Store(version.folder.parents[1]), knowing(version, evaluation.name, rows)
    for both in (False, True) if evaluation.kind == "preference" else (False,):
        for mirror in (False, True):
            with monkeypatch.context() as patch:
                patch.setattr(judging, "open_session", lambda *_, mirror=mirror: nullcontext(Oracle(known, mirror)))
                wish = MeasurementOptions(evaluation.name, part=SamplePart("all"), both_orders=both)
                try:
                    facts, _ = judging.judge(
                        version,
                        find_corpus(version.corpus),
                        store,
                        Examinee(annotator="openai:x"),
                        wish,
                        folder / "asked",
                    )
                except EarmarkError as error:
                    assert "no_media" in str(error)  # noqa: PT017  an arena's releases name no audio
                    return
            if evaluation.kind == "preference":
                expect(facts, best=not mirror)
            elif not mirror:  # no for each item of yes, and so on: of a negative with one wrong item still a no
                assert metrics_of(facts)["accuracy"] == metrics_of(facts)["auroc"] == 1.0


@pytest.mark.slow
def test_a_file_for_pairs_says_which_clip_it_means(pairs: Version, tmp_path: Path) -> None:
    version = pairs
    rows = [{"id": row["pair_id"], "score_a": 1, "score_b": 0} for row in rows_of(version, "pairs")]
    said = (
        "score_chosen and score_rejected.* chosen and rejected are chosen_id and rejected_id of the table pairs; found"
    )
    with pytest.raises(InputError, match=said):
        measure(version, rows, MeasurementOptions(part=SamplePart("all")), tmp_path)
    rows = [{"id": row["pair_id"], "choice": "chosen"} for row in rows_of(version, "pairs")]
    facts = measure(version, rows, MeasurementOptions(part=SamplePart("all")), tmp_path)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == 1.0
    gaps = {row["value"]: row["samples"] for row in facts["rows"] if row["group"] == "gap"}
    small = [row["mos_gap"] for row in rows_of(version, "pairs") if row["mos_gap"] <= 0.5]
    assert gaps.get("> 0.5", 0) == len(rows) - len(small)
    assert gaps.get("< 0.2", 0) == sum(gap < 0.2 for gap in small)
    assert facts["order"] == "chosen and rejected are chosen_id and rejected_id of the table pairs"


@pytest.mark.slow
def test_cycles_are_counted_in_a_hundred_triplets(pairs: Version, tmp_path: Path) -> None:
    """A triplet of which A beats B, B beats C, and C beats A, or all the other way round; ties decide nothing."""
    triplets = rows_of(pairs, "triplets")
    assert len(triplets) >= 10
    said = {"ab": "chosen", "bc": "chosen", "ac": "chosen"}
    ways = [{**said, "ac": "rejected"}, {"ab": "rejected", "bc": "rejected", "ac": "chosen"}, {**said, "bc": "tie"}]
    ways += [{**said, "ab": "rejected"}, dict.fromkeys(said, "rejected")] + [said] * (len(triplets) - 5)
    rows = [
        {"id": f"{row['triplet_id']}-{two}", "choice": choice}
        for row, way in zip(triplets, ways, strict=True)
        for two, choice in way.items()
    ]
    facts = measure(pairs, rows, MeasurementOptions("cycles", part=SamplePart("all")), tmp_path)
    counted = {name: facts["cycles"][name] for name in ("triplets", "decided", "cycles")}
    assert counted == {"triplets": len(triplets), "decided": len(triplets) - 1, "cycles": 2}
    assert facts["cycles"]["per_100"] == pytest.approx(200 / (len(triplets) - 1))
    assert facts["cycles"]["low"] <= facts["cycles"]["per_100"] <= facts["cycles"]["high"]
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == pytest.approx(1 - 8 / len(rows))


@pytest.mark.slow
def test_gaps_fall_into_tenths_of_what_is_measured(pairs: Version, tmp_path: Path) -> None:
    rows = [{"id": row["pair_id"], "choice": "chosen"} for row in rows_of(pairs, "pairs")]
    facts = measure(pairs, rows, MeasurementOptions(part=SamplePart("all")), tmp_path)
    tenths = [row["samples"] for row in facts["rows"] if row["group"] == "gap_decile"]
    assert len(tenths) == 10
    assert max(tenths) - min(tenths) <= 1
    lengths = {row["sample_id"]: row["duration_s"] for row in rows_of(pairs, "ratings")}
    assert max(lengths.values()) < 10
    assert [row["samples"] for row in facts["rows"] if row["value"] == "0 to 10 s"] == [len(rows)]


def test_a_model_is_shown_either_clip_first_and_answers_are_turned_back(pairs: Version, tmp_path: Path) -> None:
    """The order in which a model hears two clips is drawn; what is counted of it is not."""
    version, store, first = pairs, Store(pairs.folder.parents[1]), []
    with LocalServer(Faults()) as server:
        for answer in ("A", "B"):
            server.answer = lambda body, content, answer=answer: json.dumps(answer)
            config = Examinee(annotator=f"openai:says-{answer}", base_url=server.base_url, retry_base_s=0.01)
            wish = MeasurementOptions(part=SamplePart("all"))
            facts, _ = judging.judge(version, find_corpus(version.corpus), store, config, wish, tmp_path / answer)
            first.append(facts["rows"][0]["metrics"]["accuracy"]["value"])
    assert first[0] + first[1] == pytest.approx(1.0)
    assert 0.25 < first[0] < 0.75  # 60 pairs: a judge that always says A gains nothing by the order


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize(
    ("rows", "line", "found"),
    [
        (["a,1", "b,2,3", "c,3"], 3, 3),
        (["a,1", "b", "c,3"], 3, 1),
        (["a,1,2", "b,2,3"], 2, 3),
        (['"a\nb",1', "", "b,2,3"], 5, 3),
        ([*(f"c{n},{n}" for n in range(25_000)), "b,2,3"], 25_002, 3),
    ],
)
def test_a_row_of_other_length_than_its_header_is_named(
    tmp_path: Path, ending: str, rows: list[str], line: int, found: int
) -> None:
    """The header was said to lack the columns, or the file to be in another encoding."""
    path = tmp_path / f"rm.{ending}"
    text = "\n".join(["clip,score", *rows, ""])
    path.write_text(text if ending == "csv" else text.replace(",", "\t"), "utf-8")
    message = rf"rm\.{ending}, line {line}: expected 2 cells, as in the header, found {found}$"
    with pytest.raises(InputError, match=message):
        read_table(path)


def test_names_that_are_numbers_and_texts_in_json_are_all_texts(tmp_path: Path) -> None:
    """A text among them had quotation marks, so that no clip had its name."""
    path = tmp_path / "rm.jsonl"
    rows = [{"clip": 1, "score": 0.5}, {"clip": 'b "2"', "score": "0.3"}, {"clip": None, "score": None}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found = read_table(path).to_pylist()
    assert found == [{"clip": "1", "score": "0.5"}, {"clip": 'b "2"', "score": "0.3"}, {"clip": None, "score": None}]
