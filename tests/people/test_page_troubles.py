"""A clip that does not play, a browser that keeps nothing and a server that is away stop no listener."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.people.answers import parse_answers, read_plan
from earmark.tasks.people.served import StudyApp
from earmark.tasks.people.server import make_bounded_server
from tests.browser import PATIENCE_S, Tab
from tests.people.study_page import (
    CONTINUE,
    better,
    label,
    pass_intro,
    ratings_study,
    start_study,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return start_study(tmp_path / "study")


def test_a_clip_that_does_not_play_is_reported_and_the_page_goes_on(study: Path, tab: Tab, tmp_path: Path) -> None:
    """Choices made before the report are no vote; a copy can be saved before the end."""
    plan = read_plan(study)
    page = plan.pages[0]
    file = study / "pages" / f"{page.name}.html"
    head, content, tail = re.split('(?<=id="study">)(.*?)(?=</script>)', file.read_text("utf-8"), maxsplit=1)
    facts = json.loads(content)
    silent = plan.generations[page.trials[0].clips["b"]].sha256[:16]
    facts["clips"][silent] = "data:audio/wav;base64,AAAA"
    file.write_text(head + json.dumps(facts).replace("<", "\\u003c") + tail, "utf-8")
    tab.open(file)
    assert tab.ask("document.querySelector('#kept').textContent").startswith("Your answers are kept in this browser")
    pass_intro(tab)
    tab.until("document.getElementById('cannot').checkVisibility()")
    assert (
        tab.ask("document.getElementById('cannot').textContent") == "Clip B cannot be played: go on without an answer"
    )
    assert "A clip does not play" in tab.ask("document.getElementById('warning').textContent")
    tab.ask("document.querySelector('#stage input[value=a]').click()")
    tab.ask("document.querySelector('textarea[name=feedback]').value = 'no sound \\ud83c'")  # half an emoji
    tab.ask("document.querySelector('#stage form').dataset.before = ''; document.getElementById('cannot').click()")
    tab.until("document.querySelector('[data-before]') === null")
    assert tab.ask("document.getElementById('warning').hidden")
    assert not tab.ask("document.getElementById('cannot').checkVisibility()")
    tab("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.ask("document.querySelector('#kept button').click()")
    copy = tmp_path / f"demo-{page.name}.json"
    until = time.monotonic() + PATIENCE_S
    while not copy.exists():
        assert time.monotonic() < until, "no copy came"
        time.sleep(0.05)
    answers = parse_answers(plan, copy.read_bytes(), copy.name).answers
    assert {trial: one.response for trial, one in answers.items()} == {
        page.trials[0].id: {"feedback": "no sound \ufffd", "unplayable": "b"}
    }


def test_a_clip_that_never_comes_can_be_reported(tab: Tab, tmp_path: Path) -> None:
    """It gives no error either: the button comes after a time without a sound."""
    folder, over = (
        ratings_study(tmp_path, 1, 'questionnaires = 1\neach = { id = 1 }\nsound = "beside"'),
        threading.Event(),
    )
    plan = read_plan(folder)
    served = StudyApp(plan, folder)

    def stalled(environ: Any, start_response: Any) -> Any:
        if "/clips/" in environ["PATH_INFO"]:
            over.wait(2 * PATIENCE_S)
        return served(environ, start_response)

    server = make_bounded_server(stalled, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.visit(f"http://127.0.0.1:{server.server_port}/{plan.pages[0].key}/")
        tab.until(f"{CONTINUE} !== null")
        tab.ask(f"{CONTINUE}.click()")
        tab.until("document.querySelector('#stage audio') !== null")
        assert not tab.ask("document.getElementById('cannot').checkVisibility()")
        tab.until("document.getElementById('cannot').checkVisibility()")
        assert (
            tab.ask("document.getElementById('cannot').textContent") == "Clip cannot be played: go on without an answer"
        )
        assert tab.ask("document.getElementById('warning').hidden"), "it is no fault yet"
        tab.ask("document.getElementById('cannot').click()")
        tab.until("document.getElementById('count').textContent.startsWith('1 of')")
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_a_clip_that_is_not_loaded_before_it_is_played_is_not_taken_for_a_silent_one(tab: Tab, tmp_path: Path) -> None:
    """As on phones: a listener who reads for long is not told that its clips cannot be played."""
    folder = ratings_study(tmp_path, 1, 'questionnaires = 1\neach = { id = 1 }\nsound = "beside"')
    plan = read_plan(folder)
    file = folder / "pages" / f"{plan.pages[0].name}.html"
    file.write_text(file.read_text("utf-8").replace('preload=\\"metadata\\"', 'preload=\\"none\\"'), "utf-8")
    server = make_bounded_server(StudyApp(plan, folder), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.visit(f"http://127.0.0.1:{server.server_port}/{plan.pages[0].key}/")
        tab.until(f"{CONTINUE} !== null")
        tab.ask(f"{CONTINUE}.click()")
        tab.until("document.querySelector('#stage audio') !== null")
        tab.ask("performance.now = ((now) => () => now() + 60_000)(performance.now.bind(performance))")
        tab.ask("document.querySelector('#stage audio').dispatchEvent(new Event('pause'))")  # looks again
        assert tab.ask("document.querySelector('#stage audio').readyState") == 0
        assert not tab.ask("document.getElementById('cannot').checkVisibility()")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("sent", [False, True])
def test_a_browser_that_keeps_nothing_names_the_copy_where_there_is_one(study: Path, tab: Tab, sent: bool) -> None:
    plan = read_plan(study)
    server = make_bounded_server(StudyApp(plan, study), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    full = tab("Page.addScriptToEvaluateOnNewDocument", source="Storage.prototype.setItem = () => { throw Error() }")
    try:
        if sent:
            tab.visit(f"http://127.0.0.1:{server.server_port}/{plan.pages[0].key}/")
        else:
            tab.open(study / "pages" / f"{plan.pages[0].name}.html")
        pass_intro(tab)
        label(tab, plan, plan.pages[0], better, slice(1))
        warning = tab.ask("document.getElementById('warning').textContent")
        copies = tab.ask("document.querySelectorAll('#kept button').length")
    finally:
        tab("Page.removeScriptToEvaluateOnNewDocument", identifier=full["identifier"])
        server.shutdown()
        server.server_close()
    assert warning.startswith("This browser keeps nothing between visits")
    assert ("copy below" in warning) is bool(copies) is not sent


def test_the_last_answers_are_sent_when_the_server_is_back(study: Path, tab: Tab) -> None:
    plan = read_plan(study)
    page = plan.pages[0]
    server = make_bounded_server(StudyApp(plan, study), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    tab.visit(f"http://127.0.0.1:{port}/{page.key}/")
    pass_intro(tab)
    label(tab, plan, page, better, slice(None, -1))
    server.shutdown()
    server.server_close()
    label(tab, plan, page, better, slice(-1, None))
    tab.until("document.getElementById('end')?.textContent.includes('tries again')")
    assert tab.ask("document.querySelector('a[download]') !== null")
    server = make_bounded_server(StudyApp(plan, study), "127.0.0.1", port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.until("document.getElementById('end').textContent.includes('arrived. You can close')")
        assert tab.ask("document.querySelector('a[download]') === null")
        kept = parse_answers(plan, (study / "answers" / f"{page.name}.json").read_bytes(), "kept")
        assert len(kept.answers) == len(page.trials)
    finally:
        server.shutdown()
        server.server_close()
