"""A study's pages in a real Chromium: of three annotators one reloads in the middle and one fails the checks."""

from __future__ import annotations

import csv
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.study import StudyPlan, Trial
from earmark.tasks.people.answers import parse_answers, read_plan
from earmark.tasks.people.served import StudyApp
from earmark.tasks.people.server import make_bounded_server
from tests.browser import PATIENCE_S, Tab
from tests.builds import build_version, read_config
from tests.people.returning import choices, returned
from tests.people.study_page import (
    CONTINUE,
    HEAR,
    RANKS,
    ROOT,
    answer,
    better,
    label,
    pass_intro,
    ratings_study,
    saved,
    start_study,
    worse,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return start_study(tmp_path / "study")


def test_three_annotators(study: Path, tab: Tab, tmp_path: Path) -> None:
    plan = read_plan(study)
    first, second, third = plan.pages

    tab.open(study / "pages" / "p001.html")
    pass_intro(tab)
    label(tab, plan, first, better, slice(None, 4))
    assert tab.ask("document.getElementById('count').textContent") == f"4 of {len(first.trials)}"
    tab.visit((study / "pages" / "p001.html").as_uri())  # reloaded: no example again, and the fifth trial
    label(tab, plan, first, better, slice(4, None))
    files = [saved(tab, tmp_path, "demo-p001.json")]

    tab.open(study / "pages" / "p002.html")
    pass_intro(tab)
    label(tab, plan, second, worse, slice(None))
    files.append(saved(tab, tmp_path, "demo-p002.json"))

    server = make_bounded_server(StudyApp(plan, study), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.visit(f"http://127.0.0.1:{server.server_port}/{third.key}/")
        pass_intro(tab)
        label(tab, plan, third, better, slice(None))
        tab.until("document.getElementById('end')?.textContent.includes('arrived')")
        tab.ask("localStorage.clear()")  # as in another browser: the page goes on from what the server has
        tab.visit(f"http://127.0.0.1:{server.server_port}/{third.key}/")
        tab.until("document.getElementById('end')?.textContent.includes('arrived')")
        assert {url for url in tab.requests if not url.startswith(("blob:", "data:"))} == {
            f"http://127.0.0.1:{server.server_port}/{third.key}/{path}" for path in ("", "answers")
        }
        assert tab.complaints == []
    finally:
        server.shutdown()
        server.server_close()

    run = CliRunner()
    shown = run.invoke(app, ["people", "study", "status", str(study), *map(str, files), "--json"])
    facts = json.loads(shown.output)
    assert [(one["done"], one["fails"]) for one in facts["pages"]] == [
        (len(first.trials), False),
        (len(second.trials), True),
        (len(third.trials), False),
    ]
    assert all(one["repeats_same"] <= one["repeats"] == 4 for one in facts["pages"])
    assert facts["refused"] == []

    out = tmp_path / "votes.jsonl"
    fetched = run.invoke(app, ["people", "study", "fetch", str(study), *map(str, files), "--out", str(out)])
    assert fetched.exit_code == 0, fetched.output
    votes = [json.loads(line) for line in out.read_text().splitlines()]
    assert {vote["annotator"].split("-")[1] for vote in votes} == {"p001", "p003"}
    assert len(votes) == 16
    for vote in votes:
        ranks = {letter: RANKS["musicality"][vote[f"model_{letter}"]] for letter in "ab"}
        assert ranks[vote["musicality"]] == min(ranks.values()), vote
        assert (vote["confidence_musicality"], vote["confidence_alignment"]) == (4, 3)
        assert vote["listened_a_s"] > 1


def test_the_first_of_two_devices_answers_a_trial_and_the_page_goes_on(study: Path, tab: Tab) -> None:
    """Another device's answer to the first trial arrived before a reload, one to the second while the page is open."""
    plan = read_plan(study)
    page = plan.pages[0]
    file = study / "answers" / f"{page.name}.json"
    server = make_bounded_server(StudyApp(plan, study), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def answered(count: int) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while True:
            answers = dict(parse_answers(plan, file.read_bytes(), "file").answers) if file.exists() else {}
            if len(answers) == count:
                return {trial: one.model_dump() for trial, one in answers.items()}
            assert time.monotonic() < until, (len(answers), tab.ask("document.getElementById('warning').textContent"))
            time.sleep(0.05)

    try:
        tab.visit(f"http://127.0.0.1:{server.server_port}/{page.key}/")
        pass_intro(tab)
        others = choices(plan, page, lambda _: "b")
        expected = {}
        for done, trial in enumerate(page.trials[:2], start=1):
            answer(tab, plan, trial, lambda *_: "a")
            before = answered(done)
            assert before[trial.id]["response"] != others[trial.id]["response"]
            expected[trial.id] = others[trial.id]
            file.write_bytes(returned(plan, page, expected))
            if done == 1:
                tab.visit(f"http://127.0.0.1:{server.server_port}/{page.key}/")
                tab.until("document.querySelector('#stage fieldset') !== null")
        label(tab, plan, page, better, slice(2, None))
        tab.until("document.getElementById('end')?.textContent.includes('arrived')")
        assert tab.ask("document.getElementById('warning').hidden")
        arrived = answered(len(page.trials))
        assert {name: arrived[name] for name in expected} == expected
    finally:
        server.shutdown()
        server.server_close()


def test_a_page_by_keyboard_on_a_phone(study: Path, tab: Tab) -> None:
    plan = read_plan(study)
    tab.show(390, 800, "dark")
    tab.open(study / "pages" / "p003.html")
    pass_intro(tab)
    assert tab.ask("document.documentElement.scrollWidth") <= 390, "the page scrolls sideways"
    tab.press("a", 65)
    tab.until("document.querySelector('audio[data-letter=a]').currentTime > 0.1")
    tab.press("b", 66)  # one at a time
    tab.until("document.querySelector('audio[data-letter=b]').currentTime > 0.1")
    assert tab.ask("document.querySelector('audio[data-letter=a]').paused")
    # The second key comes before the browser says that the first clip plays: the second plays on.
    key = "document.getElementById('stage').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}));"
    tab.ask("document.querySelectorAll('audio').forEach((one) => { one.pause(); one.currentTime = 0 })")
    tab.until("[...document.querySelectorAll('audio[data-letter]')].every((one) => one.paused && !one.seeking)")
    tab.ask(key % "a" + key % "b")
    tab.until("document.querySelector('audio[data-letter=b]').currentTime > 0.1")
    assert tab.ask("document.querySelector('audio[data-letter=a]').paused")
    tab.ask(HEAR)
    tab.until(f"!{CONTINUE}.disabled")
    assert tab.ask("document.querySelectorAll('input:checked').length") == 0, "an answer that nobody gave"
    for question in plan.questions:  # Space chooses the radio button that has the focus, and sends
        for name in (question, f"confidence_{question}"):
            assert not tab.ask("document.querySelector('#stage form').checkValidity()")
            tab.ask(f"document.querySelector('input[name={name}]').focus()")
            tab.press(" ", 32)
    assert tab.ask("[...document.querySelectorAll('input[value=a]:checked')].length") == len(plan.questions)
    tab.ask(f"{CONTINUE}.focus()")
    tab.press(" ", 32)
    tab.until(f"document.getElementById('count').textContent === '1 of {len(plan.pages[2].trials)}'")
    assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_answers_are_equal_cells_in_a_frame_and_players_stay_in_sight(study: Path, tab: Tab, width: int) -> None:
    tab.show(width, 844)
    tab.open(study / "pages" / "p001.html")
    pass_intro(tab)
    boxes = "[...document.querySelectorAll('{}')].map((one) => one.getBoundingClientRect().toJSON())"
    cells = tab.ask(boxes.format("fieldset:first-of-type .scale label"))
    assert len(cells) == 5
    assert len({(round(cell["top"]), round(cell["width"])) for cell in cells}) == 1
    (frame,), (legend,) = (tab.ask(boxes.format(f"fieldset:first-of-type{of}")) for of in ("", " legend"))
    assert legend["top"] > frame["top"] + 1
    assert legend["left"] > frame["left"] + 1
    if width == 390:
        tab.ask("scrollTo(0, document.body.scrollHeight)")
        header = tab.ask(boxes.format("header"))[0]
        players = tab.ask(boxes.format("audio[data-letter]"))
        assert len(players) == 2
        assert all(header["bottom"] <= player["top"] and player["bottom"] < 844 / 3 for player in players)


def test_text_runs_in_its_own_direction_and_the_count_fits_beside_a_long_name(study: Path, tab: Tab) -> None:
    """The unit at the end of a Hebrew line is the leftmost, and stands beside its number."""
    tab.show(390, 844)
    tab.open(study / "pages" / "p001.html")
    pass_intro(tab)
    assert tab.reads_leftwards("#stage blockquote")
    tab.ask("document.getElementById('title').textContent = 'instruction-rubrics-v12-alignment'")
    assert tab.ask("document.getElementById('count').getBoundingClientRect().right") <= 390


def test_an_audit_by_hand(tab: Tab, tmp_path: Path) -> None:
    """Drawn, answered in the page, saved and read: one row of four is contradicted, with a reason."""
    config = read_config(ROOT / "data/demo/mos-preferences-audio.toml")
    store, folder, run = tmp_path / "store", tmp_path / "audit", CliRunner()
    build_version(config, store)
    words = [
        "people",
        "audit",
        "sample",
        "mos-preferences",
        "--evaluation",
        "quality",
        "--limit",
        "4",
        "--reviewers",
        "1",
    ]
    drawn = run.invoke(app, [*words, "--people", "1", "--split", "all", "--store", str(store), "--out", str(folder)])
    assert drawn.exit_code == 0, drawn.output + str(drawn.exception)
    plan = read_plan(folder)
    (page,) = plan.pages

    tab.open(folder / "pages" / f"{page.name}.html")
    pass_intro(tab)
    for number, trial in enumerate(page.trials):
        label = trial.expected["label"] if number else {"a": "b", "b": "a"}[trial.expected["label"]]
        tab.until(f"document.getElementById('count').textContent === '{number} of 4'")
        assert tab.ask(f"{CONTINUE}.disabled"), "answered before anything was heard"
        tab.ask(HEAR)
        tab.until(f"!{CONTINUE}.disabled")
        tab.ask(f"document.querySelector('input[name=label][value={label}]').click()")
        if not number:
            tab.ask("document.querySelector('textarea[name=feedback]').value = 'it crackles'")
        tab.ask(f"document.querySelector('#stage form').dataset.before = ''; {CONTINUE}.click()")
        tab.until("document.querySelector('[data-before]') === null")
    file = saved(tab, tmp_path, f"mos-preferences-v1-quality-{page.name}.json")
    assert tab.complaints == []

    read = run.invoke(app, ["people", "audit", "read", str(folder), str(file), "--store", str(store), "--json"])
    facts = json.loads(read.output)
    assert (facts["audited"], facts["refused"]) == (4, [])
    assert [(cell["label"], cell["confirmed"], cell["refuted"]) for cell in facts["cells"]] == [("chosen", 3, 1)]
    with (Path(facts["record"]) / "rows.csv").open(newline="", encoding="utf-8") as written:
        (wrong,) = [row for row in csv.DictReader(written) if row["verdict"] == "refuted"]
    assert (wrong["row"], wrong["instead"]) == (page.trials[0].prompt_id, "rejected")
    assert wrong["why"] == f"{page.name}: it crackles"


def test_no_page_names_a_model(study: Path) -> None:
    for page in (study / "pages").glob("*.html"):
        text = page.read_text()
        for name in ("birch", "cedar", "dahlia", "p01-", "generation"):
            assert name not in text, (page.name, name)


def by_system(plan: StudyPlan, trial: Trial, _: str) -> str:
    """A rating that tells the demo's systems apart."""
    return {"dahlia": "2", "cedar": "3", "birch": "4", "aster": "5"}[plan.generations[trial.clips["a"]].model]


def test_ratings_with_clips_beside_the_page(tab: Tab, tmp_path: Path) -> None:
    """ATTM's test in small: one clip a screen, whose file lies beside the page under a name that tells nothing."""
    folder = ratings_study(tmp_path, 2, 'questionnaires = 2\neach = { id = 2 }\nsound = "beside"')
    plan = read_plan(folder)
    tab.open(folder / "pages" / "p001.html")
    tab.until(f"{CONTINUE} !== null")
    tab.ask(f"{CONTINUE}.click()")
    label(tab, plan, plan.pages[0], by_system, slice(None))
    assert tab.complaints == []
    file = saved(tab, tmp_path, "mos-p001.json")
    status = CliRunner().invoke(app, ["people", "study", "status", str(folder), str(file), "--json"])
    assert {row["system"]: row["mos"] for row in json.loads(status.output)["mos"]} == {
        "aster": 5, "birch": 4, "cedar": 3, "dahlia": 2
    }  # fmt: skip


BACKGROUNDS = {  # years, profession, appreciation: at each bound, and just beyond it by one sign alone
    ("3", "no", "3"): False,
    ("3.1", "no", "1"): True,
    ("0", "yes", "1"): True,
    ("0", "no", "4"): True,
}


def test_an_expert_is_told_by_the_first_screen(tab: Tab, tmp_path: Path) -> None:
    """ATTM's three signs as a listener types them; the screen takes no other years, and no missing answer."""
    folder = ratings_study(tmp_path, len(BACKGROUNDS), "questionnaires = 1\neach = { id = 1 }\nbackground = true")
    plan = read_plan(folder)
    files = []
    for page, (years, profession, appreciation) in zip(plan.pages, BACKGROUNDS, strict=True):
        tab.open(folder / "pages" / f"{page.name}.html")
        tab.until(f"{CONTINUE} !== null")
        tab.ask(f"{CONTINUE}.click()")
        tab.until("document.querySelector('input[name=years]') !== null")
        valid = "document.querySelector('#stage form').checkValidity()"
        for name, value in (("profession", profession), ("appreciation", appreciation)):
            assert not tab.ask(valid)
            tab.ask(f"document.querySelector('input[name={name}][value=\"{value}\"]').click()")
        for typed in ("", "-1", "three", "3,5", years):
            tab.ask(f"document.querySelector('input[name=years]').value = {json.dumps(typed)}")
            assert tab.ask(valid) is (typed == years), typed
        tab.ask(f"{CONTINUE}.click()")
        label(tab, plan, page, by_system, slice(1, None))
        files.append(saved(tab, tmp_path, f"mos-{page.name}.json"))
        assert tab.complaints == []
    facts = json.loads(
        CliRunner().invoke(app, ["people", "study", "status", str(folder), *map(str, files), "--json"]).output
    )
    assert [one["expert"] for one in facts["pages"]] == [*BACKGROUNDS.values()]
    assert {(row["annotators"], row["experts"]["annotators"]) for row in facts["mos"]} == {(4, 3)}
