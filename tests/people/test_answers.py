"""Returned files: what is taken, what is refused, and the votes that come of it, as the importer reads them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError
from earmark.schemas.human_preferences import VoteSource
from earmark.schemas.study import AnnotatorPage, Heard, Study, StudyPlan, Trial, Wanted
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.votes import VOTE_LAYOUTS, Vote
from earmark.tasks.people.answers import (
    mean_opinions,
    parse_answers,
    progress_of,
    read_answers,
    read_plan,
    usable,
    votes_of,
)
from earmark.tasks.people.choosing import pages_of
from tests.people import test_choosing as choosing
from tests.people.returning import as_shown, choices, returned
from tests.people.study_page import CONFIG, ROOT


def _anywhere(config: str) -> str:
    """The demo's config, which may lie in another folder than what it names."""
    return re.sub(r'"(music|study)/', rf'"{ROOT}/data/demo/\1/', config)


def test_clips_of_a_pattern_of_files_are_found(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (ROOT / "data/demo/music/prompts.jsonl").read_text().splitlines()[:2]]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clip, other, *_ = sorted((ROOT / "data/demo/music/clips").glob("*.*"))
    for model, sound in (("x", clip), ("y", other)):
        for row in rows:
            (tmp_path / "clips" / model).mkdir(parents=True, exist_ok=True)
            shutil.copy(sound, tmp_path / "clips" / model / f"{row['prompt_id']}{clip.suffix}")
    pattern = f"clips/{{model}}/{{prompt_id}}{clip.suffix}"
    config = (
        f'name = "s"\nprompts = "prompts.jsonl"\ngenerations = "{pattern}"\nannotators = 2\n[checks]\nrepeats = 0\n'
    )
    (tmp_path / "s.toml").write_text(config)
    run = CliRunner().invoke(
        app, ["people", "study", "start", "--config", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")]
    )
    assert run.exit_code == 0, run.exception
    heard = {one.audio for one in read_plan(tmp_path / "out").generations.values()}
    assert heard == {f"{model}/{row['prompt_id']}{clip.suffix}" for model in "xy" for row in rows}


def test_files_that_are_all_refused_write_no_votes(study: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "a.json", tmp_path / "votes.jsonl"
    file.write_text("{}")
    run = CliRunner().invoke(app, ["people", "study", "fetch", str(study), str(file), "--out", str(out)])
    assert (run.exit_code, out.exists()) == (1, False)
    assert "found none in 1 files" in str(run.exception) + run.output
    run = CliRunner().invoke(app, ["people", "study", "fetch", str(study), "--out", str(out)])
    assert (run.exit_code, out.exists()) == (1, False)
    assert "found none; name the files that they sent back" in str(run.exception)


def test_a_file_without_answers_writes_no_votes(study: Path, plan: StudyPlan, tmp_path: Path) -> None:
    file, out = tmp_path / "a.json", tmp_path / "votes.jsonl"
    file.write_bytes(returned(plan, plan.pages[0], {}))
    run = CliRunner().invoke(app, ["people", "study", "fetch", str(study), str(file), "--out", str(out)])
    assert (run.exit_code, out.exists()) == (1, False)
    assert f"that count, found none in those of p001: {out} is not written" in str(run.exception)


def test_votes_are_read_by_the_importer(study: Path, plan: StudyPlan, tmp_path: Path) -> None:
    files = []
    for page in plan.pages:
        files.append(tmp_path / f"{page.name}.json")
        files[-1].write_bytes(returned(plan, page, as_shown(plan, page)))
    out = tmp_path / "votes.jsonl"
    run = CliRunner().invoke(app, ["people", "study", "fetch", str(study), *map(str, files), "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert "24 votes of 3 annotators" in run.output
    source = VoteSource(name="study", format="votes", files=("votes.jsonl",))
    file = ListFile(out, "study/votes.jsonl", "", "jsonl")
    votes = list(VOTE_LAYOUTS.find("votes").read(source, [file], str(tmp_path)))
    assert all(isinstance(vote, Vote) for vote in votes), votes
    assert len(votes) == 24
    for vote in votes:
        better = vote.model_a if vote.musicality == "a" else vote.model_b
        assert better == min(vote.model_a, vote.model_b)
        assert (vote.date, vote.listened_a_s, vote.confidence_alignment) == ("2026-03-01", 2.0, 3.0)
    by_pair: dict[frozenset[str], set[str]] = {}
    for vote in votes:
        by_pair.setdefault(frozenset((vote.audio_a, vote.audio_b)), set()).add(vote.annotator)
    assert [len(names) for names in by_pair.values()] == [2] * 12, "each pair has two annotators' votes and no check"
    shown = json.loads(
        CliRunner().invoke(app, ["people", "study", "status", str(study), *map(str, files), "--json"]).output
    )
    assert shown["agreement"] == {"alignment": 1.0, "musicality": 1.0}, "all prefer the same clip of each pair"
    assert all(one["repeats_same"] == one["repeats"] == 4 for one in shown["pages"])


@pytest.mark.parametrize(("prompts", "in_a", "in_r"), [("g/../asked", "g/clips", "asked/refs"), ("g", "clips", "refs")])
def test_votes_name_references_and_clips_from_one_folder(tmp_path: Path, prompts: str, in_a: str, in_r: str) -> None:
    """The tables may lie in two: a source has one `audio_root`."""
    demo, (clip, other, *_) = ROOT / "data/demo/music", sorted((ROOT / "data/demo/music/clips").glob("*.*"))
    for folder, sound in (
        ("g/clips", clip),
        ("g/clips", other),
        (f"{prompts}/refs", next((demo / "references").iterdir())),
    ):
        (tmp_path / "g").mkdir(exist_ok=True)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(sound, tmp_path / folder)
    asked = {"prompt_id": "p", "text": "A tune", "reference_audio": f"refs/{sound.name}"}
    (tmp_path / prompts / "prompts.jsonl").write_text(json.dumps(asked))
    rows = [
        {"generation_id": one.stem, "prompt_id": "p", "model": one.stem, "audio": f"clips/{one.name}"}
        for one in (clip, other)
    ]
    (tmp_path / "g/generations.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = f'name = "s"\nprompts = "{prompts}/prompts.jsonl"\ngenerations = "g/generations.jsonl"\nannotators = 2\n'
    (tmp_path / "s.toml").write_text(config)
    run = CliRunner().invoke(
        app, ["people", "study", "start", "-c", str(tmp_path / "s.toml"), "-o", str(tmp_path / "out")]
    )
    assert run.exit_code == 0, run.exception
    plan = read_plan(tmp_path / "out")
    (page, *_) = plan.pages
    (vote,) = votes_of(plan, [parse_answers(plan, returned(plan, page, choices(plan, page, lambda _: "a")), "x")])
    assert vote["reference"] == f"{in_r}/{sound.name}"
    assert {vote["audio_a"], vote["audio_b"]} == {f"{in_a}/{one.name}" for one in (clip, other)}


def test_who_always_says_a_is_inconsistent_and_agrees_by_chance(study: Path, plan: StudyPlan, tmp_path: Path) -> None:
    for page in plan.pages:
        (tmp_path / f"{page.name}.json").write_bytes(returned(plan, page, choices(plan, page, lambda _: "a")))
    files = sorted(map(str, tmp_path.glob("*.json")))
    facts = json.loads(CliRunner().invoke(app, ["people", "study", "status", str(study), *files, "--json"]).output)
    assert all(one["repeats_same"] == 0 for one in facts["pages"]), "the same letter is not the same clip"
    assert not any(value is not None and value > 0.99 for value in facts["agreement"].values())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"crc32": "00000000"}, "do not fit their checksum"),
        ({"study": "another"}, "belongs to study 'another', not 'demo'"),
        ({"key": "0" * 32}, "its page is not one of this study"),
        ({"format": "other/1"}, "expected the JSON file that a study's page saves"),
    ],
)
def test_files_that_are_refused(
    study: Path, plan: StudyPlan, tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    page = plan.pages[0]
    path = tmp_path / "x.json"
    path.write_bytes(returned(plan, page, choices(plan, page, lambda _: "a"), **changed))
    kept, refused = read_answers(plan, study, [path])
    assert kept == []
    assert len(refused) == 1
    assert message in refused[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_file_that_an_editor_saved_anew_is_read(study: Path, plan: StudyPlan, tmp_path: Path, encoding: str) -> None:
    page = plan.pages[0]
    answers = choices(plan, page, lambda _: "a")
    next(iter(answers.values()))["response"]["feedback"] = "schöner Klang, 好"
    path = tmp_path / "x.json"
    path.write_bytes(returned(plan, page, answers).decode().encode(encoding))
    kept, refused = read_answers(plan, study, [path])
    assert ([len(one.answers) for one in kept], refused) == ([len(answers)], [])
    path.write_bytes(b"\xff\xfe{")
    assert read_answers(plan, study, [path]) == ([], ["x.json: expected the JSON file that a study's page saves"])


@pytest.mark.parametrize(
    ("value", "message"),
    [("tie", "expected one of a, b for alignment, found 'tie'"), ("", "found ''"), ("a\n", "expected one of a, b")],
)
def test_answers_that_were_not_asked(study: Path, plan: StudyPlan, tmp_path: Path, value: str, message: str) -> None:
    page = plan.pages[0]
    path = tmp_path / "x.json"
    path.write_bytes(returned(plan, page, choices(plan, page, lambda _: value)))
    kept, refused = read_answers(plan, study, [path])
    assert (kept, len(refused)) == ([], 1)
    assert message in refused[0]


def test_doubled_files(study: Path, plan: StudyPlan, tmp_path: Path) -> None:
    page = plan.pages[0]
    whole = choices(plan, page, lambda _: "a")
    part = dict(list(whole.items())[:3])
    other = choices(plan, page, lambda _: "b")
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path, answers in zip(paths, (part, whole, other), strict=True):
        path.write_bytes(returned(plan, page, answers))
    kept, refused = read_answers(plan, study, [paths[0], paths[1], paths[1]])
    assert ([len(one.answers) for one in kept], refused) == ([len(page.trials)], [])
    kept, refused = read_answers(plan, study, paths)
    assert kept == []
    assert "different answers of page p001; neither is used" in refused[0]


def test_rows_about_one_known_pair_are_one_trial(tmp_path: Path) -> None:
    """A line a question, also in the other order, is how one writes such a table."""
    known = tmp_path / "known.csv"
    known.write_text(
        "generation_a,generation_b,musicality,alignment\np02-aster-1,p02-dahlia-1,a,\np02-dahlia-1,p02-aster-1,,b\n"
    )
    text = CONFIG.read_text().replace('"study/known.csv"', f'"{known}"')
    config = tmp_path / "study.toml"
    config.write_text(_anywhere(text))
    words = ["people", "study", "start", "--config", str(config), "--out"]
    assert CliRunner().invoke(app, [*words, str(tmp_path / "out")]).exit_code == 0
    for page in read_plan(tmp_path / "out").pages:
        (trial,) = (trial for trial in page.trials if trial.kind == "known")
        right = next(letter for letter, clip in trial.clips.items() if clip == "p02-aster-1")
        assert trial.expected == {"musicality": right, "alignment": right}
    known.write_text(known.read_text() + "p02-aster-1,p02-dahlia-1,b,\n")
    refused = CliRunner().invoke(app, [*words, str(tmp_path / "again")])
    assert "line 4: contradicts an earlier row about the same pair" in str(refused.exception)


def test_two_starts_are_two_groups_of_people(plan: StudyPlan, tmp_path: Path) -> None:
    """Or the votes of the second would fall as doubled, and its p001 be taken for the first's."""
    run = CliRunner().invoke(
        app, ["people", "study", "start", "--config", str(CONFIG), "--out", str(tmp_path / "again")]
    )
    assert run.exit_code == 0
    again = read_plan(tmp_path / "again")
    rows = [
        votes_of(one, [parse_answers(one, returned(one, one.pages[0], as_shown(one, one.pages[0])), "x")])
        for one in (plan, again)
    ]
    for name in ("vote_id", "annotator"):
        assert not {row[name] for row in rows[0]} & {row[name] for row in rows[1]}


def test_the_plan_is_for_the_lab_alone(study: Path) -> None:
    assert os.stat(study / "plan.json").st_mode & 0o077 == 0  # noqa: PTH116
    run = CliRunner().invoke(app, ["people", "study", "start", "--config", str(CONFIG), "--out", str(study)])
    assert run.exit_code == 1, "a study that runs was written over"


def test_the_first_of_two_rows_of_an_id_is_the_one_that_people_hear(tmp_path: Path) -> None:
    music = ROOT / "data/demo/music"
    shutil.copytree(music, tmp_path / "music")
    shutil.copytree(ROOT / "data/demo/study", tmp_path / "study")
    for table, other in (("prompts", {"text": "Another"}), ("generations", {"model": "another"})):
        path = tmp_path / f"music/{table}.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines, json.dumps(json.loads(lines[0]) | other)]))
    (tmp_path / "study.toml").write_text(CONFIG.read_text().replace("[checks]", 'consent = "consent.md"\n[checks]'))
    (tmp_path / "consent.md").write_text("# Consent", "utf-8-sig")  # as some editors save it
    words = ["people", "study", "start", "-c", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "--json"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.exception
    again = [(one["item"], one["line"]) for one in json.loads(run.output)["rejects"] if one["reason"] == "duplicate_id"]
    assert sorted(item for item, _ in again) == ["p01", "p01-aster-1"]
    plan = read_plan(tmp_path / "out")
    assert "another" not in {one.model for one in plan.generations.values()}
    assert "Another" not in {one.text for one in plan.prompts.values()}
    assert "<h1>Consent" in (tmp_path / "out/pages/p001.html").read_text("utf-8").replace("\\u003c", "<")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('b = "p02-dahlia-1"', "expected two generations of one prompt, found 'p01-aster-1' and 'p02-dahlia-1'"),
        ('b = "p01-aster-1"', "expected two generations of one prompt, found 'p01-aster-1' and 'p01-aster-1'"),
        ('known = "nothing.csv"', "nothing.csv"),
        ('consent = "nothing.md"', "nothing.md"),
        ("pairs = 5000", "need 10000 places"),
        ("per_pair = 9", "per_pair = 9 needs as many annotators, found 3"),
        ("ratio = 2", "unknown key 'ratio'"),
    ],
)
def test_bad_configs(tmp_path: Path, line: str, message: str) -> None:
    name = line.split(" = ")[0]
    text = _anywhere(CONFIG.read_text())
    lines = [one for one in text.splitlines() if not one.startswith(f"{name} =")]
    lines.insert(lines.index("[[examples]]" if name == "b" else "[checks]") + (name in ("known", "b")), line)
    path = tmp_path / "study.toml"
    path.write_text("\n".join(lines))
    run = CliRunner().invoke(app, ["people", "study", "start", "--config", str(path), "--out", str(tmp_path / "out")])
    assert run.exit_code == 1
    text = run.output + (str(run.exception) if run.exception else "")
    assert message in text, text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pairs", "ratings"])
def test_no_question_takes_the_name_of_another_column_of_the_answers(kind: str, study: Path, tmp_path: Path) -> None:
    """A question called `text` put its answers in place of the prompt's."""
    questions = [{"name": "quality", "text": "Which is better?"}]
    config: dict[str, Any] = {"name": "s", "kind": kind, "prompts": "p", "generations": "g", "annotators": 2}
    assert Study(**config, questions=questions).questions[0].name == "quality"
    plan = rated()
    (page, *_) = plan.pages
    answers = {trial.id: {"response": dict.fromkeys(plan.questions, "3")} for trial in page.trials}
    for answer in answers.values():
        answer |= {"heard_s": {}, "seconds": 9.0, "at": "2026-03-01T10:00:00Z"}
    by_rating = votes_of(plan, [parse_answers(plan, returned(plan, page, answers), "x")])[0].keys() - {*plan.questions}
    plan = read_plan(study)
    (page, *_) = plan.pages
    file = returned(plan, page, choices(plan, page, lambda _: "a"))
    compared = votes_of(plan, [parse_answers(plan, file, "x")])[0].keys()
    compared -= {*plan.questions, *(f"confidence_{question}" for question in plan.questions)}
    for name in sorted(by_rating | compared | {"expert", "confidence_quality"}):
        with pytest.raises(ValidationError, match=f"questions: '{name}' is a column of the answers already"):
            Study(**config, questions=[*questions, {"name": name, "text": "Which is better?"}])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seconds", -1.0, "greater than or equal to 0"),
        ("seconds", 1e300, "less than or equal to"),
        ("seconds", float("nan"), "finite number"),
        ("seconds", float("inf"), "finite number"),
        ("heard_s", {"a": -0.5, "b": 1.0}, "greater than or equal to 0"),
        ("heard_s", {"a": 1.0, "../x": 1.0}, "found those of '../x'"),
        ("at", "x" * 5000, "at most 40 characters"),
        ("feedback", "x" * 2001, "at most 2000 characters of feedback"),
        ("confidence_alignment", "6", "confidence from 1 to 5"),
        ("injected", "x", "found a field 'injected'"),
    ],
)
def test_answers_that_no_page_gives_are_refused(
    study: Path, plan: StudyPlan, tmp_path: Path, field: str, value: object, message: str
) -> None:
    page = plan.pages[0]
    content = json.loads(returned(plan, page, choices(plan, page, lambda _: "a")))
    answers = json.loads(content["body"])
    first = next(iter(answers.values()))
    (first if field in first else first["response"])[field] = value
    body = json.dumps(answers)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content | {"body": body, "crc32": f"{zlib.crc32(body.encode()):08x}"}), "utf-8")
    kept, refused = read_answers(plan, study, [path])
    assert (kept, len(refused)) == ([], 1)
    assert message in refused[0]


def rated(**values: Any) -> StudyPlan:
    """A plan of ratings, with a page for each of four annotators."""
    config = choosing.study(kind="ratings", questions=choosing.QUALITY, **values)
    stuff = choosing.material(40, 3, groups=("ood", "id", "id", "id", "id"))
    made = {name: Heard(prompt_id=one.prompt_id, model=one.model, audio=one.audio, sha256="0" * 64)
            for name, one in stuff.generations.items()}  # fmt: skip
    prompts = {name: Wanted(text=one.text, lyrics=None, reference=None) for name, one in stuff.prompts.items()}
    return StudyPlan(
        study="s", kind="ratings", questions=("quality",), choices=tuple("12345"), most_failed=0.34, prompts=prompts,
        generations=made, pages=pages_of(config, stuff, b"for tests"),
    )  # fmt: skip


def rating_file(plan: StudyPlan, page: AnnotatorPage, rate: Callable[[Trial, int], int], **about: str) -> bytes:
    answers = {}
    for place, trial in enumerate(page.trials):
        said = about if trial.kind == "background" else {"quality": str(rate(trial, place))}
        answers[trial.id] = {"response": said, "heard_s": {}, "seconds": 3.0, "at": "2026-03-01T10:00:00.000Z"}
    return returned(plan, page, answers)


@pytest.mark.parametrize(
    ("years", "profession", "appreciation", "expert"),
    [("3", "no", "3", False), ("3.5", "no", "1", True), ("0", "yes", "1", True), ("0", "no", "4", True)],
)
def test_an_expert_has_one_sign_of_three(years: str, profession: str, appreciation: str, expert: bool) -> None:
    plan = rated(background=True)
    about = {"years": years, "profession": profession, "appreciation": appreciation}
    one = parse_answers(plan, rating_file(plan, plan.pages[0], lambda _, place: place % 5 + 1, **about), "x")
    (first, *others) = progress_of(plan, [one])
    assert (first.expert, first.done, first.trials, first.fails) == (expert, 15, 15, False)
    assert {other.expert for other in others} == {None}
    assert {row["expert"] for row in votes_of(plan, [one])} == {expert}


@pytest.mark.parametrize(
    "wrong", [{"years": "-1"}, {"years": "many"}, {"profession": "maybe"}, {"appreciation": "6"}, {"name": "Ada"}]
)
def test_a_background_of_another_form_is_refused(wrong: dict[str, str]) -> None:
    plan = rated(background=True)
    about = {"years": "3", "profession": "no", "appreciation": "3", **wrong}
    with pytest.raises(InputError, match="expected years, profession, appreciation, found another"):
        parse_answers(plan, rating_file(plan, plan.pages[0], lambda _, place: 3, **about), "x")


def test_raters_who_do_not_listen_fail() -> None:
    """One gives all clips a 3, one contradicts two of four repeats, one is a step off, one contradicts one of four."""
    plan = rated(checks={"repeats": 4})

    def contrary(trial: Trial, place: int, times: int, by: int) -> int:
        clip = int(hashlib.sha256(trial.clips["a"].encode()).hexdigest(), 16) % 2 + 1
        again = [one.id for one in plan.pages[place].items if one.kind == "repeat"]
        return clip + by * (trial.id in again[:times])

    rate = [
        lambda trial, _: 3,
        lambda trial, _: contrary(trial, 1, 2, 3),
        lambda trial, _: contrary(trial, 2, 4, 1),
        lambda trial, _: contrary(trial, 3, 1, 3),
    ]
    kept = [parse_answers(plan, rating_file(plan, page, how), "x") for page, how in zip(plan.pages, rate, strict=True)]
    found = progress_of(plan, kept)
    assert [(one.repeats_same, one.repeats, one.fails) for one in found] == [
        (4, 4, True), (2, 4, True), (4, 4, False), (3, 4, False)
    ]  # fmt: skip
    assert [one.page for one in usable(plan, kept)] == ["p003", "p004"]
    assert all(row["annotators"] == 2 and row["ratings"] == 10 for row in mean_opinions(plan, usable(plan, kept)))


def test_clips_that_did_not_play_are_no_vote(study: Path, plan: StudyPlan, tmp_path: Path) -> None:
    """They are in no figure, and named; an answer beside them, or a letter that the screen lacks, is refused."""
    page = plan.pages[0]
    answers = as_shown(plan, page)
    trial = next(one for one in page.trials if one.kind == "pair")
    whole = votes_of(plan, [parse_answers(plan, returned(plan, page, answers), "x")])
    answers[trial.id]["response"] = {"unplayable": "b", "feedback": "no sound"}
    file, out = tmp_path / "a.json", tmp_path / "votes.jsonl"
    file.write_bytes(returned(plan, page, answers))
    run = CliRunner().invoke(app, ["people", "study", "fetch", str(study), str(file), "--out", str(out)])
    line = f"{page.name}: 1 without an answer, as clips did not play: {trial.clips['b']}"
    assert line in run.output
    votes = [json.loads(row) for row in out.read_text().splitlines()]
    assert len(votes) == len(whole) - 1
    assert not any({vote["audio_a"], vote["audio_b"]} == {plan.generations[i].audio for i in trial.clips.values()}
                   for vote in votes)  # fmt: skip
    facts = json.loads(CliRunner().invoke(app, ["people", "study", "status", str(study), str(file), "--json"]).output)
    assert facts["unplayed"] == [line]
    assert (facts["pages"][0]["done"], facts["pages"][0]["trials"]) == (len(page.trials) - 1, len(page.trials))
    for wrong in ({"unplayable": "c"}, {"unplayable": ""}, {"unplayable": "a", "musicality": "a"}):
        answers[trial.id]["response"] = wrong
        with pytest.raises(InputError, match="expected letters of clips that did not play and no answer"):
            parse_answers(plan, returned(plan, page, answers), "x")


@pytest.mark.parametrize(("pick", "fails"), [("a", True), ("b", True), ("tie", False)])
def test_one_letter_everywhere_fails_the_checks(plan: StudyPlan, pick: str, fails: bool) -> None:
    """Ten trials or more, on all questions: A and B change sides, so that nobody who listens answers so."""
    plan = plan.model_copy(update={"choices": ("a", "b", "tie"), "most_failed": 1.0})
    page = plan.pages[0]
    answers = choices(plan, page, lambda _: pick)
    assert progress_of(plan, [parse_answers(plan, returned(plan, page, answers), "x")])[0].fails is fails
    few = dict(list(answers.items())[:9])
    assert not progress_of(plan, [parse_answers(plan, returned(plan, page, few), "x")])[0].fails
    answers[page.trials[3].id]["response"]["musicality"] = "b" if pick == "a" else "a"
    assert not progress_of(plan, [parse_answers(plan, returned(plan, page, answers), "x")])[0].fails
