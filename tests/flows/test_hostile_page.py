"""A hostile page against a running `earmark serve`: it reads nothing, starts nothing, and no key leaves."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from earmark.flows.command.doctor import examine
from earmark.flows.command.respelling import new_values
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import LocalServer
from tests.browser import Tab, chromium
from tests.deploy.test_deploy import waited
from tests.deploy.test_schedules import CORPUS, PROMPTS, REQUESTS, deployments
from tests.flows.day import Day, served
from tests.pseudo_preferences.music import make_pool, values_of
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

CANARY = "sk-canary-8be41f70c2d95a36"
EVIL = "evil.example"
ATTACK = """
async (api, run, types) => {
  const seen = [];
  const ask = async (path, body, type) => {
    try {
      const sent = {method: "POST", headers: {"Content-Type": type}, body: JSON.stringify(body)};
      const answer = await fetch(api + path, sent);
      seen.push(answer.status);
      return answer.ok ? await answer.json() : null;
    } catch (error) { seen.push("unreadable"); return null; }
  };
  for (const type of types) {
    for (const one of (await ask("/deployments/filter", {}, type)) || [])
      await ask(`/deployments/${one.id}/create_flow_run`, run, type);
    await ask(`/deployments/DEPLOYMENT/create_flow_run`, run, type);  // as if it had guessed the id
  }
  return seen;
}
"""


@dataclass
class Lab:
    """`earmark serve` with a key in its environment, and a server that would like to have it."""

    day: Day
    attacker: OpenAIServer
    pool: Path
    store: Path
    deployment: str

    def parameters(self, **more: Any) -> dict[str, Any]:
        """What makes a run ask the attacker's server."""
        values = values_of(self.attacker.base_url, judge={"require": ["musicality"]})
        config = new_values(PseudoPreferences, {"corpus": CORPUS, "base": str(self.pool), **values})
        return {"parameters": {"config": config, "store": str(self.store), **more}}

    def run(self, **more: Any) -> dict[str, Any]:
        """A run that somebody with the password starts, at its end."""
        started = self.day.prefect.ask(f"/deployments/{self.deployment}/create_flow_run", self.parameters(**more))
        place = f"/flow_runs/{started['id']}"
        ended = ("COMPLETED", "FAILED", "CRASHED")
        waited("the run's end", lambda: self.day.prefect.ask(place)["state_type"] in ended, 180)
        found: dict[str, Any] = self.day.prefect.ask(place)
        return found

    def untouched(self) -> None:
        """Nothing was started, nothing was asked."""
        assert self.day.prefect.ask("/flow_runs/count", {}) == 0
        assert self.attacker.faults.numbers()["asked"] == 0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One for all tests here; they run in their order."""
    base = tmp_path_factory.mktemp("lab")
    make_pool(base / "pool", PROMPTS)
    store = base / "store"
    file = deployments(base / "pool", "http://127.0.0.1:9/v1", store, every_s=None)
    with (
        LocalServer(Faults()) as attacker,
        served(base / "machine", file, store, OPENAI_API_KEY=CANARY, EARMARK_KEY_HOSTS="") as day,
    ):
        known = day.prefect.ask(f"/deployments/name/{CORPUS}/often")
        yield Lab(day, attacker, base / "pool", store, str(known["id"]))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_request_by_another_name_gets_nothing(lab: Lab) -> None:
    api = lab.day.prefect.url
    for headers in ({"Host": EVIL, "Origin": f"http://{EVIL}"}, {"Origin": f"http://{EVIL}"}, {}):
        for path, body in (
            ("/deployments/filter", {}),
            (f"/deployments/{lab.deployment}/create_flow_run", lab.parameters()),
        ):
            answer = httpx.post(api + path, json=body, headers=headers, timeout=60)
            assert answer.status_code == 401
            assert "access-control-allow-origin" not in answer.headers
    lab.untouched()
    metrics = f"http://127.0.0.1:{lab.day.metrics}/metrics"
    assert httpx.get(metrics).status_code == 200
    assert httpx.get(metrics, headers={"Host": EVIL}).status_code == 403


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_page_in_a_browser_gets_nothing(lab: Lab, tmp_path: Path) -> None:
    api, here = lab.day.prefect.url, f"http://{EVIL}:{lab.attacker.port}"
    port = urlsplit(api).port
    metrics = f"http://127.0.0.1:{lab.day.metrics}/metrics"
    with chromium(tmp_path / "profile", f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as tab:
        tab.visit(f"{here}/counts")
        assert tab.ask("location.host") == f"{EVIL}:{lab.attacker.port}"
        # from its own origin: the browser asks the server whether it may, and hides the answer to what it may not
        assert set(attack(tab, lab, api)) == {"unreadable"}
        assert reads(tab, metrics) == "unreadable"
        # its name now means this machine: to the browser, server and page are one
        tab.visit(f"http://{EVIL}:{port}/")
        assert set(attack(tab, lab, "/api")) == {401}
        tab.visit(metrics.replace("127.0.0.1", EVIL))
        assert "EARMARK_METRICS_HOSTS" in tab.ask("document.body.innerText")
    lab.untouched()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_servers_own_page_works_with_the_password(lab: Lab, tmp_path: Path) -> None:
    api = lab.day.prefect.url
    with chromium(tmp_path / "profile") as tab:
        for name in ("127.0.0.1", "localhost"):
            tab.visit(f"http://{name}:{urlsplit(api).port}/")
            header = json.dumps(lab.day.prefect.access())
            count = f"fetch('{api}/deployments/count', {{method: 'POST', headers: {header}}}).then(a => a.json())"
            assert tab.ask(count) == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_doctor_sees_that_it_asks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", lab.day.prefect.url)
    (found,) = [one for one in examine(Store(lab.store)) if one.what == "Prefect"]
    assert (found.state, "needs a password" in found.detail) == ("ok", True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_no_key_leaves_even_with_the_password(lab: Lab) -> None:
    run = lab.run()
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert lab.attacker.faults.numbers()["asked"] == REQUESTS
    assert lab.attacker.headers
    assert not [value for value in lab.attacker.headers if CANARY in value]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_deployment_stays_below_the_roots(lab: Lab, tmp_path: Path) -> None:
    (lab.pool / "way-out").symlink_to(tmp_path)
    make_pool(tmp_path / "elsewhere", 1)
    config = {**lab.parameters()["parameters"]["config"], "base": str(lab.pool / "way-out/elsewhere")}
    for more, what in (({"store": str(tmp_path / "store")}, "store: "), ({"config": config}, "input: ")):
        run = lab.run(**more)
        assert run["state_type"] == "FAILED"
        assert what in run["state"]["message"]
        assert "lies outside EARMARK_ROOTS" in run["state"]["message"]
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_password_lies_in_its_file_alone(lab: Lab) -> None:
    home = lab.day.prefect.home
    (file,) = home.glob("*.auth")
    password = file.read_text().strip().partition(":")[2]
    assert len(password) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    said = lab.day.log.read_text()
    assert str(file) in said
    words = " ".join(word for one in psutil.process_iter() for word in _words(one))
    for secret in (password, CANARY):
        assert secret not in said
        assert secret not in words
        held = [path for path in (*home.rglob("*"), *lab.store.rglob("*")) if path.is_file() and path != file]
        assert [path for path in held if secret.encode() in path.read_bytes()] == []


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has ended


def attack(tab: Tab, lab: Lab, api: str) -> list[Any]:
    """What the page's script sees of its requests, with and without a content type that needs the server's leave."""
    script = ATTACK.replace("DEPLOYMENT", lab.deployment)
    words = ", ".join(map(json.dumps, (api, lab.parameters(), ["application/json", "text/plain"])))
    seen: list[Any] = tab.ask(f"({script})({words})")
    return seen


def reads(tab: Tab, url: str) -> Any:
    """The text of an address as the page's script reads it."""
    return tab.ask(f"fetch({json.dumps(url)}).then(a => a.text()).catch(() => 'unreadable')")
