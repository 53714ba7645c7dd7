"""Votes and ratings of models beside those of people: `earmark init` asks, and a build counts none as a person's."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import pytest

from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.importers.lists import Rating, read_source
from earmark.tasks.importers.votes import table_votes
from tests.importers import test_guessing, test_vote_guessing
from tests.importers.test_votes import file_of

# the name of a column, a model's cell and a person's; two columns stand behind `listener` where the second tells
MARKED = {
    "judge": ("judge", "gpt-4o", "anna"),
    "address": ("rater", "openrouter/google/gemini-2.5-pro", "anna"),
    "by": ("listener,rated_by", "l{n},claude-3-5-sonnet", "l{n},anna"),
    "kind": ("listener,annotator_type", "l{n},model", "l{n},human"),
    "judges-kind": ("listener,judge_type", "l{n},LLM judge", "l{n},expert"),
    "source": ("listener,source", "l{n},llm", "l{n},crowd"),
}
READ = [
    "judge",
    "address",
    "kind",
    "judges-kind",
    "source",
]  # of `rated_by` a hand-written config need not say that it tells who answered


def rows(name: str, form: str, header: str) -> str:
    columns, model, person = MARKED[name]
    cells = [(model if n % 3 == 0 else person).format(n=n % 4) for n in range(24)]
    cells = [cell if "," in cell or n % 3 == 0 else f"{cell}{n % 4}" for n, cell in enumerate(cells)]
    body = [form.format(n=n, cells=cell) for n, cell in enumerate(cells)]
    return "\n".join([header.format(columns=columns), *body]) + "\n"


@pytest.mark.parametrize("name", MARKED)
def test_votes_of_models_are_asked_about_and_no_persons(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows(name, "x/{n}.wav,y/{n}.wav,a,{cells}", "audio_a,audio_b,winner,{columns}"))
    said = test_vote_guessing.init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    column, model = MARKED[name][0].rpartition(",")[2], MARKED[name][1].rpartition(",")[2]
    assert f'{column} holds "{model}" in 8 of 24 rows' in said
    votes = test_vote_guessing.read(tmp_path / "my.toml")
    assert [vote.line for vote in votes] == [n + 2 for n in range(24) if n % 3]


@pytest.mark.parametrize("name", READ)
def test_a_config_by_hand_counts_no_vote_of_a_model(name: str, tmp_path: Path) -> None:
    text = rows(name, "x/{n}.wav,y/{n}.wav,a,{cells}", "audio_a,audio_b,overall,{columns}")
    got = list(table_votes(file_of(tmp_path, text.encode(), "t.csv", "csv"), {}, str(tmp_path)))
    counted = [row.line for row in got if not isinstance(row, Reject)]
    assert not any("gpt-4o'" in row.detail for row in got if isinstance(row, Reject)), "names leave no build"
    if name != "address":  # by hand, nothing says that `rater` is the annotator
        assert counted == [n + 2 for n in range(24) if n % 3]
        assert {row.reason for row in got if isinstance(row, Reject)} == {"automatic"}


def ratings(tmp_path: Path, name: str, listener: str, **told: object) -> list[Rating]:
    (tmp_path / "t.csv").write_text(rows(name, "{n}.wav,4,{cells}", "file,score,{columns}"))
    columns = {"file": "file", "mos": "score", "listener": listener}
    source = {"name": "s", "format": "table", "files": {"train": "t.csv"}, "columns": columns, **told}
    build = parse_config(MosPreferences, {"corpus": "mos-preferences", "sources": [source]}, tmp_path / "my.toml")
    return [row for row in read_source(build.sources[0], build.path) if isinstance(row, Rating)]


@pytest.mark.parametrize("name", READ)
def test_a_rating_of_a_model_counts_only_where_the_config_says_so(name: str, tmp_path: Path) -> None:
    listener, _, kind = MARKED[name][0].partition(",")
    assert [row.line for row in ratings(tmp_path, name, listener)] == [n + 2 for n in range(24) if n % 3]
    words = [*dict.fromkeys(cell.rpartition(",")[2] for cell in MARKED[name][1:])]
    words += [f"anna{n}" for n in range(4)]
    assert len(ratings(tmp_path, name, listener, where={kind or listener: words})) == 24


@pytest.mark.parametrize("name", MARKED)
def test_ratings_of_models_are_asked_about(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows(name, "{n}.wav,4,{cells}", "file,score,{columns}"))
    said = test_guessing.init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert f"{MARKED[name][0].rpartition(',')[2]} holds" in said
    assert "answers of models" in said


def test_people_with_names_of_models_and_sources_of_clips_are_not_asked_about(tmp_path: Path) -> None:
    people = ["Claude", "Nova", "Phil", "O1", "Gemma Smith", "Claude Proulx", "Gptolemy", "o3x", "Modell"]
    text = "file,score,listener,system,source\n" + "".join(
        f"{n}.wav,{1 + n % 5},{person},{'tts' if n % 2 else 'natural'},{'model' if n % 2 else 'human'}\n"
        for n, person in enumerate(islice(cycle(people), 24))
    )
    (tmp_path / "t.csv").write_text(text)
    test_guessing.init(tmp_path / "t.csv", tmp_path / "my.toml")
    config = tmp_path / "my.toml"
    build = parse_config(MosPreferences, read_toml(config), config)
    assert sum(isinstance(row, Rating) for row in read_source(build.sources[0], build.path)) == 24


def test_init_asks_about_a_source_of_clips_that_a_build_would_reject(tmp_path: Path) -> None:
    """Speech that language models made is kept by `where`."""
    made = ("llm", "vocoder", "human")
    text = "".join(f"{n}.wav,4,l{n % 4},s{n % 3},{made[n % 3]}\n" for n in range(24))
    (tmp_path / "t.csv").write_text("file,score,listener,system,source\n" + text)
    said = test_guessing.init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert 'source holds "llm" in 8 of 24 rows' in said
    assert "where names it with the words of the rows to keep" in said


def test_a_config_that_names_the_kind_of_annotators_keeps_votes_of_another_source(tmp_path: Path) -> None:
    """The source of prompts, say; the kind that it names still tells."""
    text = "".join(f"x/{n}.wav,y/{n}.wav,a,l{n % 4},{'llm' if n % 2 else 'human'}\n" for n in range(8))
    file = file_of(tmp_path, f"audio_a,audio_b,overall,annotator,source\n{text}".encode(), "t.csv", "csv")
    refused, kept, told = (
        [*table_votes(file, columns, str(tmp_path))]
        for columns in ({}, {"annotator_type": "annotator"}, {"annotator_type": "source"})
    )
    assert [sum(isinstance(row, Reject) for row in rows) for rows in (refused, kept, told)] == [4, 0, 4]
    assert "found source = 'llm'; if it is of clips or prompts, columns.annotator_type names another" in str(refused)


@pytest.mark.parametrize("cell", ["gpt-4o", "model", "gemini", "llm-written", "llama-tts"])
def test_a_source_that_may_have_made_the_clip_rejects_nothing_by_hand(cell: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("file,score,listener,source\n" + f"a.wav,4,l1,{cell}\nb.wav,4,l1,human\n")
    columns = {"file": "file", "mos": "score", "listener": "listener"}
    source = {"name": "s", "format": "table", "files": {"train": "t.csv"}, "columns": columns}
    build = parse_config(MosPreferences, {"corpus": "mos-preferences", "sources": [source]}, tmp_path / "my.toml")
    assert [row.line for row in read_source(build.sources[0], build.path) if isinstance(row, Rating)] == [2, 3]


def test_where_on_the_kind_of_a_rater_keeps_one_with_the_name_of_a_model(tmp_path: Path) -> None:
    text = "".join(f"{n}.wav,4,{'gpt-4o,model' if n % 3 else 'anna,human'}\n" for n in range(12))
    (tmp_path / "t.csv").write_text("file,score,rater,annotator_type\n" + text)
    columns = {"file": "file", "mos": "score", "listener": "rater"}
    source = {"name": "s", "format": "table", "files": {"train": "t.csv"}, "columns": columns}
    for where, kept in (({}, 4), ({"where": {"annotator_type": ["human", "model"]}}, 12)):
        config = {"corpus": "mos-preferences", "sources": [source | where]}
        build = parse_config(MosPreferences, config, tmp_path / "my.toml")
        assert sum(isinstance(row, Rating) for row in read_source(build.sources[0], build.path)) == kept


def test_marks_of_yes_and_no_are_asked_about_and_reject_no_vote(tmp_path: Path) -> None:
    text = "".join(f"x/{n}.wav,y/{n}.wav,a,l{n % 4},{'false' if n % 3 == 0 else 'true'}\n" for n in range(24))
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner,listener,is_human\n" + text)
    said = test_vote_guessing.init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert "remove the rows of models, which a build would count" in said
    assert "annotator_type" not in (tmp_path / "my.toml").read_text()
