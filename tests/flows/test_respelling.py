"""`earmark doctor --config` prints a config of 1.0.0 in the present spelling."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.respelling import document, is_old, left_out, new_text, new_values, renewed, toml
from earmark.flows.command.running import read_config
from earmark.schemas.captions import EVERY, Captions
from earmark.schemas.config import BuildConfig
from earmark.schemas.dropped import DROPPED
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee, Scorer
from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.music_prompts import MusicPrompts
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.score_questions import ScoreQuestions
from earmark.schemas.toml import Model, checked, parse_config, read_toml
from earmark.tasks.pipeline.registry import find_corpus
from tests.conftest import ROOT

OLD = sorted((ROOT / "tests/before/configs").glob("*.toml"))
TYPED = """# head
corpus = "captions"   # which
source = { name = "s", format = "table", tracks = "t.csv" }

# The pipeline.
[[pipelines]]
name = "p"
listen = { annotator = "openai:a", retries = 1, hears_s = 2.0 }   # one
[pipelines.refine]   # two
annotator = "openai:a"   # same
retries = 1
extra_body.x = [
    1,
]
extra_body.y = { z = "a # b" }
tries = 4   # draws
[pipelines.judge]
annotator = 'openai:lab/b'
[pipelines.judge.prices]
input_per_million = 1
output_per_million = 2.5
batch_discount = 0.5
"""


def then(model: type[Model], values: dict[str, Any], file: Path) -> Model:
    """A config as manifests of before are read: a judge has the prices beside it."""
    if "prices" in values and "judge" in values:
        values = {**values, "judge": {"prices": values["prices"], **values["judge"]}}
    more = {"base": file.parent} if issubclass(model, BuildConfig) else {}
    return model.model_validate({**values, **more}, context={"file": file, "recorded": True})


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_each_config_of_the_release_is_the_same_build_in_the_new_spelling(path: Path) -> None:
    text, old = path.read_text("utf-8"), read_toml(path)
    if "scores" in old:
        assert checked(Scorer, tomllib.loads(new_text(Scorer, text)), path) == then(Scorer, old, path)
        return
    model = find_corpus(old["corpus"]).config
    new = tomllib.loads(new_text(model, text))
    now, before = parse_config(model, new, path), then(model, old, path)
    assert isinstance(before, BuildConfig)
    assert (now.identity(), now.asked()) == (before.identity(), before.asked())
    assert not is_old(model, new)
    assert comments(new_text(model, text)) >= comments(text)
    assert renewed(path) == (new_text(model, text) if is_old(model, old) else None)


def comments(text: str) -> set[str]:
    """The comments of a config, by their words; of a line with a key of a model or a dropped key, none."""
    dropped = (key for keys in DROPPED.values() for key in keys)
    moved = ("base_url", "max_concurrency", "[prices]", 'file = "{', *dropped)
    lines = [line for line in text.splitlines() if not line.startswith(moved)]
    return {line.partition("#")[2].strip() for line in lines if "#" in line and '"#' not in line}


def test_each_layout_keeps_its_values_and_comments() -> None:
    text = new_text(Captions, TYPED)
    assert tomllib.loads(text) == new_values(Captions, tomllib.loads(TYPED))
    pipeline = tomllib.loads(text)["pipelines"][0]
    assert pipeline["listen"] == {"model": "a", "hears_s": 2.0}
    assert pipeline["refine"] == {"model": "a-2", "tries": 4}
    assert pipeline["judge"] == {"model": "b"}
    assert tomllib.loads(text)["models"] == {
        "a": {"annotator": "openai:a", "patience": {"retries": 1}},
        "a-2": {
            "annotator": "openai:a",
            "sampling": {"extra_body": {"x": [1], "y": {"z": "a # b"}}},
            "patience": {"retries": 1},
        },
        "b": {
            "annotator": "openai:lab/b",
            "money": {"prices": {"input_per_million": 1, "output_per_million": 2.5}},
        },
    }
    for comment in ("# head", "# which", "# The pipeline.", "# one", "# two", "# same"):
        assert comment in text


def test_what_judges_share_goes_to_the_model_of_each(tmp_path: Path) -> None:
    old = {
        "corpus": "pseudo-preferences",
        "prompts": "p",
        "generations": "g",
        "prices": {"input_per_million": 1, "output_per_million": 2},
        "judge": {"retries": 2, "temperature": 0.3},
        "judges": [{"annotator": "openai:m"}, {"annotator": "openai:n", "retries": 4}],
    }
    new = new_values(PseudoPreferences, old)
    judges = parse_config(PseudoPreferences, new, tmp_path / "c.toml").judges
    assert [(one.annotator, one.retries, one.temperature) for one in judges] == [
        ("openai:m", 2, 0.3),
        ("openai:n", 4, 0.3),
    ]
    assert [one.prices and one.prices.output_per_million for one in judges] == [2, 2]


def test_doctor_prints_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('annotator = "openai:m"\nbase_url = "http://127.0.0.1:9/v1"\nmax_tokens = 9  # few\n')
    told = CliRunner().invoke(app, ["doctor", "--config", str(path)])
    assert told.exit_code == 0
    assert checked(Examinee, tomllib.loads(told.stdout), path).base_url == "http://127.0.0.1:9/v1"
    assert told.stdout.startswith('model = "m"\nmax_tokens = 9  # few\n\n[models.m]\n')


def test_doctor_prints_a_renewed_file_as_json(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('annotator = "openai:m"\nbase_url = "http://127.0.0.1:9/v1"\n')
    words = ["doctor", "--config", str(path)]
    plain = CliRunner().invoke(app, words).stdout
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told == {"config": plain, "notes": ["in the spelling of 1.0.0; the output has that of now"]}
    path.write_text(plain)
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told == {"config": None, "notes": ["in the present spelling"]}
    assert "export EARMARK_VLLM=" in json.loads(CliRunner().invoke(app, ["doctor", "--vllm", "--json"]).stdout)[-1]


@pytest.mark.parametrize("value", [1234567.0, 5.0, 0.1, 0.123456789, 1e22, 1e-7, 16777217.0, float("inf")])
def test_a_number_keeps_its_value(value: float) -> None:
    assert tomllib.loads(f"x = {toml(value)}") == {"x": value}


def test_a_file_that_is_no_config_is_refused(tmp_path: Path) -> None:
    """Nothing of it would be changed, and the output would claim to be in the present spelling."""
    (tmp_path / "some.toml").write_text('[judge]\nannotator = "openai:x"\nmax_concurrency = 4\n')
    with pytest.raises(ConfigError, match='expected corpus = "NAME"'):
        renewed(tmp_path / "some.toml")


def test_a_dropped_key_with_a_value_of_its_own_is_named(tmp_path: Path) -> None:
    """The build with it is refused; without it and without a word, its clips would be looked for elsewhere."""
    path = tmp_path / "c.toml"
    path.write_text('corpus = "score-questions"\n[questions]\noptions = 5\ntries = 3\n[source]\nsalt_env = "MINE"\n')
    lost = left_out(ScoreQuestions, read_toml(path))
    assert sorted(line.partition(" is left out")[0] for line in lost) == ["options = 5", 'salt_env = "MINE"']


@pytest.mark.parametrize(
    ("old", "new", "recorded"),
    [
        ('embedding = "clap"\ncosine = 0.97', 'near = ["clap >= 0.97"]', (0.0, {"model": "clap", "least": 0.97})),
        ('embedding = { model = "a b" }', 'near = ["a b >= 0.98"]', (0.0, {"model": "a b", "least": 0.98})),
        ("fingerprint = 0.9", 'near = ["fingerprint >= 0.9"]', (0.9, None)),
        (
            'fingerprint = 1\nembedding = { model = "clap", least = -0.5 }',
            'near = ["fingerprint >= 1", "clap >= -0.5"]',
            (1.0, {"model": "clap", "least": -0.5}),
        ),
        (
            'near = ["clap >= 0.9"]\nfingerprint = 0.8',
            'near = ["clap >= 0.9", "fingerprint >= 0.8"]',
            (0.8, {"model": "clap", "least": 0.9}),
        ),
        ("cosine = 0.5", "", (0.0, None)),
        ("fingerprint = 0.0", "", (0.0, None)),
    ],
)
def test_thresholds_stand_beside_their_measures(tmp_path: Path, old: str, new: str, recorded: Any) -> None:
    head = 'corpus = "captions"\n[source]\nname = "a"\ntracks = "t"\n[[pipelines]]\nname = "p"\n' + (
        'listen = { model = "builtin:music-caption-1" }\n[decontaminate]\nagainst = ["music-prompts"]\n'
    )
    values = tomllib.loads(head + old)
    said = r"stands in near: write near = .*" if new else r"is no option any more: leave it out"
    with pytest.raises(ConfigError, match=rf"{said}; new spelling of a file: earmark doctor"):
        parse_config(Captions, values, tmp_path / "c.toml")
    assert tomllib.loads(new_text(Captions, head + old)) == tomllib.loads(head + new)
    assert left_out(Captions, values) == []
    now = parse_config(Captions, tomllib.loads(head + new), tmp_path / "c.toml")
    held = now.recorded()["decontaminate"]
    assert (held["fingerprint"], held["embedding"]) == recorded  # as before
    assert "near" not in held
    assert Captions.model_validate(now.recorded(), context={"recorded": True}).recorded() == now.recorded()


@pytest.mark.parametrize(
    "near", ["clap", "fingerprint >= 0", "clap >= 2", "clap > 0.9", "a >= 0.9 >= 0.8", ["a >= 1", "b >= 1"]]
)
def test_other_likeness_is_refused_in_one_line(tmp_path: Path, near: Any) -> None:
    values = {"against": ["captions"], "near": near if isinstance(near, list) else [near]}
    with pytest.raises(ConfigError, match=r"decontaminate\.near: expected (one )?'fingerprint >= ") as caught:
        parse_config(MosPreferences, {"sources": [], "decontaminate": values}, tmp_path / "c.toml")
    assert "\n" not in str(caught.value)


HEARD = {"model": "openai:m", "ask": "describe"}
CHECKED = {"flag": ["too_long"], "longest_words": 9}


@pytest.mark.parametrize("stage", ["listen", "refine"])
def test_checks_hold_for_a_pipelines_captions(tmp_path: Path, stage: str) -> None:
    plain = {"name": "p", "listen": HEARD} | ({"refine": {"model": "openai:n"}} if stage == "refine" else {})
    head = {"corpus": "captions", "source": {"name": "a", "tracks": "t"}}
    old = {**head, "pipelines": [{**plain, stage: {**plain[stage], "checks": CHECKED}}]}
    with pytest.raises(
        ConfigError, match=rf"{stage}: key 'checks' is no option any more: .*write checks beside {stage}"
    ):
        parse_config(Captions, old, tmp_path / "c.toml")
    new = {**head, "pipelines": [{**plain, "checks": CHECKED}]}
    assert new_values(Captions, old) == new
    assert tomllib.loads(new_text(Captions, "\n".join(document(old)))) == new
    assert left_out(Captions, old) == []
    config = parse_config(Captions, new, tmp_path / "c.toml")
    (recorded,) = config.recorded()["pipelines"]
    assert recorded[stage]["checks"] == {**CHECKED, "look_for": [*EVERY], "shortest_words": 5}  # as before
    assert "checks" not in recorded
    assert recorded["listen"]["checks"] is None or stage == "listen"
    again = Captions.model_validate(config.recorded(), context={"recorded": True})
    assert again.recorded() == config.recorded()
    assert again.pipelines[0].checks_of(stage) == config.pipelines[0].checks_of(stage) == config.pipelines[0].checks


def test_checks_of_what_is_refined_are_named_where_they_leave() -> None:
    roles = {"listen": {**HEARD, "checks": CHECKED}, "refine": {"annotator": "openai:n"}}
    old = {"corpus": "captions", "pipelines": [{"name": "p", **roles}]}
    (line,) = left_out(Captions, old)
    assert line.startswith("checks = { flag = ")
    assert new_values(Captions, old)["pipelines"] == [{"name": "p", "listen": HEARD, "refine": {"model": "openai:n"}}]


def test_a_limit_is_a_runs(tmp_path: Path) -> None:
    text = 'corpus = "captions"\nlimit = 5\n[source]\nname = "a"\n'
    assert left_out(Captions, tomllib.loads(text)) == ["limit = 5 is left out: give a run --limit N, in Python limit=N"]
    assert new_text(Captions, text) == text.replace("limit = 5\n", "")
    path = tmp_path / "c.toml"
    path.write_text(text + 'tracks = "t"\n[[pipelines]]\nname = "p"\nlisten = { model = "builtin:music-caption-1" }\n')
    assert read_config(find_corpus("captions"), path, resumed=True).limit == 5  # of a run of 1.0.0
    assert read_config(find_corpus("captions"), path, 3, resumed=True).limit == 3
    with pytest.raises(ConfigError, match="give a run --limit N"):
        read_config(find_corpus("captions"), path)


def test_a_jury_whose_judge_names_the_first_stays_a_jury(tmp_path: Path) -> None:
    judges = [{"annotator": "openai:m"}, {"annotator": "openai:n"}]
    made = {"corpus": "pseudo-preferences", "prompts": "p", "generations": "g"}
    old = {**made, "judge": {"annotator": "openai:m", "max_concurrency": 2}, "judges": judges}
    new = parse_config(PseudoPreferences, new_values(PseudoPreferences, old), tmp_path / "c.toml")
    assert [(one.annotator, one.max_concurrency) for one in new.judges] == [("openai:m", 2), ("openai:n", 2)]


@pytest.mark.parametrize(
    "line", ['[licences."a[1]"]\nlicence = "x"', "[decontaminate]\nembedding = { least = 0.9 }", 'asks = "x"']
)
def test_odd_tables_are_left_as_they_are(line: str) -> None:
    text = f'corpus = "captions"\n{line}\n[judge]\nannotator = "openai:x"\nretries = 3\n'
    tomllib.loads(new_text(Captions, text))


def test_recorded_configs_are_those_of_the_release(tmp_path: Path) -> None:
    """A build takes the prompts of the versions whose recorded config is its own."""
    values = {
        "corpus": "pseudo-preferences", "prompts": "p", "generations": "g", "judge": {"model": "openai:m"},
        "validation": "human-preferences@v3", "decontaminate": {"against": ["captions"], "audio_roots": False},
    }  # fmt: skip
    recorded = parse_config(PseudoPreferences, values, tmp_path / "c.toml").recorded()
    assert recorded["validation"] == {"against": "human-preferences@v3"}
    assert (recorded["decontaminate"]["audio_roots"], recorded["decontaminate"]["texts_only"]) == ([], True)
    assert PseudoPreferences.model_validate(recorded, context={"recorded": True}).recorded() == recorded


FLAT = """corpus = "instruction-rubrics"   # which
sources = [{ name = "s", subset = "s", domain = "music", captions = "c.csv" }]

# Kinds.
[negatives]   # even
swap = 2.0
perturb = 0   # none

[clips]
longest_s = 9   # short

[disjoint]
captions = 0.8

[models.m]
annotator = "openai:m"
answers.repair = "explain"
pace.max_concurrency = 2   # few

[judge]
model = "m"
[writer]
model = "m"
"""


def test_tables_that_are_one_value_now_stand_before_the_first_table(tmp_path: Path) -> None:
    """Their comments stay, and what the value does not say is named."""
    text = new_text(InstructionRubrics, FLAT)
    new = tomllib.loads(text)
    assert {key: new.get(key) for key in ("negatives", "length_s", "clips", "fingerprint", "disjoint")} == {
        "negatives": ["swap", "judged"], "length_s": [2, 9], "clips": None, "fingerprint": None, "disjoint": None,
    }  # fmt: skip
    assert new["models"] == {"m": {"annotator": "openai:m", "pace": {"max_concurrency": 2}}}
    assert {"# which", "# Kinds.", "# even", "# none", "# short", "# few"} <= {f"# {one}" for one in comments(text)}
    config = parse_config(InstructionRubrics, new, tmp_path / "c.toml")
    recorded = config.recorded()
    assert recorded["clips"] == {"shortest_s": 2.0, "longest_s": 9.0, "silence_dbfs": -60.0}
    assert recorded["negatives"] == {"swap": 1.0, "perturb": 0.0, "judged": 1.0, "tries": 4, "undecided": "hear"}
    assert InstructionRubrics.model_validate(recorded, context={"recorded": True}).recorded() == recorded
    assert left_out(InstructionRubrics, tomllib.loads(FLAT)) == [
        "negatives.swap = 2 is left out: negatives stands for this table",
        'repair = "explain" is left out: a question is asked again in the same words',
    ]
    with pytest.raises(ConfigError) as caught:
        parse_config(InstructionRubrics, tomllib.loads(FLAT), tmp_path / "c.toml")
    said = 'table \'negatives\' is one value now: write negatives = ["swap", "judged"]; swap has no place in it'
    assert str(caught.value).endswith(f"{said}; new spelling of a file: earmark doctor --config FILE")
    assert "\n" not in str(caught.value)


def test_a_judges_files_below_its_folder_are_one_pattern(tmp_path: Path) -> None:
    old = {"corpus": "music-prompts", "tracks": "t", "synthesis": {"model": "openai:m"},
           "verification": {"model": "openai:m", "audio": "a", "file": "{stem}.flac"}}  # fmt: skip
    with pytest.raises(ConfigError, match=r"key 'file' stands in audio: write audio = 'a/\{stem\}\.flac'"):
        parse_config(MusicPrompts, old, tmp_path / "c.toml")
    now = parse_config(MusicPrompts, new_values(MusicPrompts, old), tmp_path / "c.toml")
    assert now.verification
    assert now.verification.place == ("a/", "{stem}.flac")
    assert now.identity() == then(MusicPrompts, old, tmp_path / "c.toml").identity()  # type: ignore[attr-defined]
    assert now.recorded()["verification"]["file"] == "{stem}.flac"
