"""The page of a study that is served: answers only grow, and strangers learn nothing."""

from __future__ import annotations

import errno
import http.client
import json
import socketserver
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.metrics import for_hosts
from earmark.schemas.study import StudyPlan
from earmark.tasks.people.answers import (
    read_answers,
)
from earmark.tasks.people.served import StudyApp
from earmark.tasks.people.server import make_bounded_server
from tests.people.returning import choices, returned


@pytest.fixture
def address(study: Path, plan: StudyPlan) -> Iterator[str]:
    server = make_bounded_server(for_hosts(StudyApp(plan, study), {"127.0.0.1"}, "--name"), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    for path in (study / "answers").glob("*.json"):
        path.unlink()


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_served_answers_only_grow(address: str, study: Path, plan: StudyPlan) -> None:
    page, other = plan.pages[:2]
    here = f"{address}/{page.key}/answers"
    whole = choices(plan, page, lambda _: "a")
    part = dict(list(whole.items())[:3])
    assert ask(here, returned(plan, page, part)) == (200, b"kept")
    assert ask(here, returned(plan, page, whole)) == (200, b"kept")
    assert ask(here, returned(plan, page, part))[0] == 409, "an old tab took answers away"
    assert ask(here, returned(plan, page, choices(plan, page, lambda _: "b")))[0] == 409
    assert ask(here, returned(plan, other, choices(plan, other, lambda _: "a")))[0] == 400
    assert ask(here, b"{}")[0] == 400
    assert ask(here, returned(plan, page, whole), **{"Content-Type": "text/plain"})[0] == 415
    assert [len(one.answers) for one in read_answers(plan, study, [])[0]] == [len(whole)]


def test_answers_that_cannot_be_written_are_refused_and_come_again(
    address: str, study: Path, plan: StudyPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: the page learns why and goes on, the operator reads a line, and no traceback."""
    page = plan.pages[0]
    here = f"{address}/{page.key}/answers"
    whole = choices(plan, page, lambda _: "a")
    part = dict(list(whole.items())[:3])
    assert ask(here, returned(plan, page, part)) == (200, b"kept")

    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert ask(here, returned(plan, page, whole)) == (507, b"not kept: No space left on device")
    assert [one.getMessage().partition(": ")[2] for one in caplog.records] == [
        "not kept: No space left on device; pages keep their answers, and send them again"
    ]
    assert ask(here) == (200, returned(plan, page, part))
    assert ask(here, returned(plan, page, whole)) == (200, b"kept")


def test_a_served_page_gives_back_what_was_sent(address: str, plan: StudyPlan) -> None:
    page = plan.pages[0]
    here = f"{address}/{page.key}/answers"
    assert ask(here)[0] == 204
    sent = returned(plan, page, choices(plan, page, lambda _: "a"))
    assert ask(here, sent)[0] == 200
    assert ask(here) == (200, sent)


def test_parts_of_a_file(address: str, plan: StudyPlan, study: Path) -> None:
    """As Safari asks for sound."""
    url = f"{address}/{plan.pages[0].key}/"
    whole = (study / "pages/p001.html").read_bytes()
    assert ask(url, Range="bytes=0-1") == (206, whole[:2])
    assert ask(url, Range="bytes=100-") == (206, whole[100:])
    assert ask(url, Range=f"bytes=10-{10 * len(whole)}") == (206, whole[10:])
    assert ask(url, Range="bytes=9-2")[0] == 200
    assert ask(url, Range=f"bytes={len(whole)}-") == (200, whole)


@pytest.mark.parametrize(
    ("names", "sent"),
    [((), "http://127.0.0.1:"), (("study.lab.example", "other.example"), "https://study.lab.example/")],
)
def test_links_name_the_proxy_that_people_reach(
    study: Path, plan: StudyPlan, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], sent: str
) -> None:
    def ended(server: socketserver.BaseServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(socketserver.BaseServer, "serve_forever", ended)
    options = [word for name in names for word in ("--name", name)]
    done = CliRunner().invoke(app, ["people", "study", "serve", str(study), "--port", "0", *options])
    assert done.exit_code == 0, done.exception
    links = [line.split(" ") for line in (study / "links.txt").read_text("utf-8").splitlines()]
    (study / "links.txt").unlink()
    assert [name for name, _ in links] == [page.name for page in plan.pages]
    ends = [
        (link.startswith(sent), link.endswith(f"/{page.key}/"))
        for (_, link), page in zip(links, plan.pages, strict=True)
    ]
    assert {*ends} == {(True, True)}


def test_a_link_without_its_last_slash_leads_to_the_page(address: str, plan: StudyPlan) -> None:
    """Also below a proxy's path: the place is said relative to the link."""
    key = plan.pages[0].key
    assert ask(f"{address}/{key}") == ask(f"{address}/{key}/")
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=10)
    connection.request("GET", f"/{key}")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, f"{key}/")
    connection.close()
    assert ask(f"{address}/{'0' * 32}")[0] == 404


def test_strangers_learn_nothing(address: str, plan: StudyPlan) -> None:
    key = plan.pages[0].key
    for path in (
        "/",
        f"/{'0' * 32}/",
        "/plan.json",
        f"/{key}/plan.json",
        f"/{key}/../plan.json",
        f"/{key}/clips/../../plan.json",
    ):
        assert ask(address + path)[0] == 404, path
    assert ask(f"{address}/{key}/")[0] == 200
    assert ask(f"{address}/{key}/", Host="evil.example")[0] == 403


def test_the_longest_feedback_of_every_trial_fits_a_request(address: str, plan: StudyPlan) -> None:
    page = plan.pages[0]
    content = json.loads(returned(plan, page, choices(plan, page, lambda _: "a")))
    answers = json.loads(content["body"])
    for answer in answers.values():
        answer["response"]["feedback"] = "\x01" * 2000
    body = json.dumps(answers)
    sent = json.dumps(content | {"body": body, "crc32": f"{zlib.crc32(body.encode()):08x}"}).encode()
    assert ask(f"{address}/{page.key}/answers", sent)[0] == 200
    more = b" " * (len(page.trials) + 2) * (32 << 10)
    assert ask(f"{address}/{page.key}/answers", sent + more)[0] == 413
