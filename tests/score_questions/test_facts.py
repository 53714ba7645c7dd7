"""Facts about real pictures: typed by two people on a page, and questions of the perception probe where they agree."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, InputError, StoreError
from earmark.schemas.study import ANSWERS, FACTS, AnnotatorPage, StudyPlan
from earmark.tasks.people.answers import parse_answers, read_plan, votes_of
from earmark.tasks.people.typing import typed_facts, write_fact_pages
from earmark.tasks.score_questions.facts import readable, write_typed_probe
from earmark.tasks.score_questions.released import read
from tests.browser import chromium
from tests.people.returning import returned
from tests.people.study_page import CONTINUE, saved
from tests.score_questions import drawings

TYPED = {
    "one.png": {"clef": "alto", "key signature": "6 flats", "time signature": "7/8", "staves": "2", "bars": "4"},
    "two.png": {"clef": "treble", "staves": "1", "staccato dots": "0", "slurs": "12", "rests": "1"},
    "three.jpg": {},
}


GUIDE = (Path(__file__).resolve().parents[2] / "flows/topics/score_questions/evaluation.md").read_text("utf-8")
EXPORT, _, READ, _ = GUIDE.partition("Facts about real pictures")[2].split("```")[1].strip().splitlines()


def run(command: str) -> str:
    """Run a command of the guide; return its output."""
    said = CliRunner().invoke(app, command.split()[1:])
    assert said.exit_code == 0, said.output
    return " ".join(said.output.split())


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "WildScore" / "images"
    folder.mkdir(parents=True)
    for seed, name in enumerate(TYPED):
        drawings.score(seed, staves=1).save(folder / name)
    (folder / "text.png").write_text("no picture")
    return folder


@pytest.fixture
def pages(scans: Path, tmp_path: Path) -> Path:
    said = run(EXPORT)
    assert "3 pictures on each of two pages" in said
    assert "left out: text.png: expected a picture" in said
    return tmp_path / "facts"


def typing(plan: StudyPlan, page: AnnotatorPage, typed: dict[str, dict[str, str]]) -> bytes:
    """The file of a page whose person types these facts by picture, and leaves the others empty."""
    about = {"heard_s": {}, "seconds": 9.0, "at": "2026-03-01T10:00:00.000Z"}
    said = {trial.id: {**dict.fromkeys(FACTS, ""), **typed[trial.prompt_id]} for trial in page.trials}
    return returned(plan, page, {trial: {"response": response, **about} for trial, response in said.items()})


def test_what_two_people_type_alike_is_asked(pages: Path, scans: Path, tmp_path: Path) -> None:
    """The second counts one bar more, and leaves a key signature and a number of rests to the first."""
    plan = read_plan(pages)
    other = {name: dict(facts) for name, facts in TYPED.items()}
    other["one.png"] |= {"bars": "5", "key signature": ""}
    del other["two.png"]["rests"]
    (pages / ANSWERS).mkdir()
    for page, typed in zip(plan.pages, (TYPED, other), strict=True):
        (pages / ANSWERS / f"{page.name}.json").write_bytes(typing(plan, page, typed))
    said = run(READ)
    assert "disputed, and left out: one.png: bars: p001 4, p002 5" in said
    assert "9 questions about 2 pictures" in said
    assert "both people wrote down 8 facts, 7 of them alike" in said
    with (tmp_path / "typed/data.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    asked = {(row["image"], row["subcategory"]): json.loads(row["final_options"]) for row in rows}
    right = {key: asked[key][row["truth_letter"]] for key, row in zip(asked, rows, strict=True)}
    assert right == {
        (name, fact): value for name, facts in TYPED.items() for fact, value in facts.items() if fact != "bars"
    }
    assert all(len({*options.values()}) == 4 for options in asked.values())
    assert {row["question"] for row in rows if row["subcategory"] == "clef"} == {
        "Which clef stands at the beginning?",
        "Which clef stands at the beginning of the top staff?",
    }
    digests = {
        row["question_id"].partition("-")[0]: row["image_sha256"]
        for row in read(tmp_path / "typed", Path())["questions"]
    }
    assert digests == {
        name: hashlib.sha256((scans / f"{name}.png").read_bytes()).hexdigest() for name in ("one", "two")
    }
    corrected = (tmp_path / "typed/data.csv").read_bytes().replace(b"treble", b"alto")
    run(f"{READ} --force")
    (tmp_path / "typed/data.csv").write_bytes(corrected)
    refused = CliRunner().invoke(app, f"{READ} --force".split()[1:])
    assert isinstance(refused.exception, StoreError)
    assert "data.csv was changed; move it away" in str(refused.exception)
    assert (tmp_path / "typed/data.csv").read_bytes() == corrected


@pytest.mark.parametrize(
    ("fact", "value"),
    [("clef", "violin"), ("key signature", "1 sharps"), ("time signature", "4"), ("bars", "four"), ("tempo", "fast")],
)
def test_a_fact_of_another_form_is_refused(pages: Path, fact: str, value: str) -> None:
    plan = read_plan(pages)
    typed = {**TYPED, "three.jpg": {fact: value}}
    with pytest.raises(InputError, match=f"found another '{fact}'"):
        parse_answers(plan, typing(plan, plan.pages[0], typed), "x")


def test_facts_are_no_votes_and_empty_pages_no_probe(pages: Path, tmp_path: Path) -> None:
    plan = read_plan(pages)
    empty = parse_answers(plan, typing(plan, plan.pages[0], {name: {} for name in TYPED}), "x")
    with pytest.raises(InputError, match="read it with `earmark people review facts`"):
        votes_of(plan, [empty])
    with pytest.raises(InputError, match="no fact is typed"):
        write_typed_probe(typed_facts(plan, [empty]), pages, tmp_path / "probe", force=False)
    with pytest.raises(StoreError, match="expected pictures to write facts of"):
        readable([("a.png", b"")])


@pytest.mark.slow
def test_a_picture_in_a_browser(pages: Path, tmp_path: Path) -> None:
    """The page shows the picture, takes no other form, and hands back what was typed."""
    plan = read_plan(pages)
    (page, _) = plan.pages
    typed = "document.querySelector('input[name=\"{}\"]').value = {}"
    with chromium(tmp_path / "profile") as tab:
        tab.open(pages / "pages" / f"{page.name}.html")
        for number in range(-1, 3):  # the introduction first
            tab.until(f"{CONTINUE} && !document.querySelector('[data-before]')")
            if number == 0:
                tab.until("document.querySelector('.prompt img')?.naturalWidth === 640")
                tab.ask(typed.format("key signature", "'3 flat'"))
                assert not tab.ask("document.querySelector('#stage form').checkValidity()")
            if number >= 0:
                for fact, value in TYPED[page.trials[number].prompt_id].items():
                    tab.ask(typed.format(fact, json.dumps(value)))
                if "key signature" not in TYPED[page.trials[number].prompt_id]:
                    tab.ask(typed.format("key signature", "''"))
                assert tab.ask("document.querySelector('#stage form').checkValidity()")
            tab.ask(f"document.querySelector('#stage form').dataset.before = ''; {CONTINUE}.click()")
        file = saved(tab, tmp_path, f"facts-{page.name}.json")
        assert tab.complaints == []
    answers = parse_answers(plan, file.read_bytes(), file.name).answers
    found = {trial.prompt_id: {k: v for k, v in answers[trial.id].response.items() if v} for trial in page.trials}
    assert found == TYPED


@pytest.mark.parametrize("number", ["0", "8", "120", ""])
def test_a_count_has_one_way_to_be_written(number: str) -> None:
    assert re.fullmatch(FACTS["bars"].form, number)
    assert not number or not re.fullmatch(FACTS["bars"].form, f"0{number}")


def test_pictures_of_one_name_are_all_kept() -> None:
    jpegs = [io.BytesIO() for _ in range(2)]
    for seed, file in enumerate(jpegs):
        drawings.score(seed, staves=1).convert("RGB").save(file, "JPEG")
    contents = [file.getvalue() for file in jpegs]
    files, refused = readable(zip(("a.jpg", "a.jpeg"), contents, strict=True))
    assert (sorted(files.values()), refused) == (sorted(contents), [])


@pytest.mark.parametrize("options", ["--images scans", "--for facts --force", "--for facts --images-at http://x"])
def test_an_option_of_another_purpose_is_refused(options: str) -> None:
    words = ["people", "review", "export", "score-questions", "--out", "facts", *options.split()]
    said = CliRunner().invoke(app, words)
    assert isinstance(said.exception, ConfigError)


def test_a_page_of_too_many_pictures_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earmark.tasks.people.page.MOST_INSIDE", 1 << 20)
    with pytest.raises(InputError, match="its clips and pictures are 2 MB, most a page holds is 1"):
        write_fact_pages({"a.png": bytes(900 << 10), "b.png": bytes(900 << 10)}, tmp_path / "facts")
    assert not (tmp_path / "facts").exists()
