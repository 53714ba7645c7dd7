"""A build whose questions get no answers that pass ends early, and says by role where its rows were lost."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command import cli
from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import EarmarkError, TooManyRejects
from earmark.schemas.mos_preferences import MosPreferences
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.progress import Meter, Progress
from earmark.tasks.pipeline.funnel import FIRST, tell_losses
from earmark.tasks.pipeline.sessions import Sessions
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, open_store
from tests.annotation.conftest import asked, config_for, model_server, requests_for, serving
from tests.builds import build_version, contents_of, rows_of
from tests.mos_preferences.critiques import config_of, make_study, write_config
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer, comparison, critic_answer

FORMLESS = "Both clips are fine.\x1b[2J\nI like the first."
PAIRS = {"clips": 0, "pairs": 45, "tries": 2, "max_concurrency": 2}


server = model_server(critic_answer)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with clips enough for 45 pairs."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder, 24)
    return folder


def config(study: Path, server: OpenAIServer, *, most: float | None = 0.2, **critiques: Any) -> MosPreferences:
    """A config that asks about pairs, two at a time."""
    return config_of(study, server.base_url, {**PAIRS, **critiques}, most_rejected=most)


@pytest.mark.slow
def test_first_rows_without_an_answer_that_passes_stop_a_build(server: OpenAIServer, tmp_path: Path) -> None:
    make_study(tmp_path / "study", 64)
    server.answer = lambda body, content: FORMLESS
    many = config_of(tmp_path / "study", server.base_url, {**PAIRS, "pairs": None}, most_rejected=0.2)
    with pytest.raises(TooManyRejects) as caught:
        build_version(many, tmp_path / "store")
    said = str(caught.value).splitlines()
    assert said[0] == (
        "mos-preferences: of the first 20 rows none passed 'paired_critiques' (critic, openai:tiny); "
        "nothing was committed"
    )
    assert said[1].split()[:2] == ["20", "bad_answer"]
    assert said[2].startswith("  one of these answers to 'paired_critiques': ")
    assert "I like the first." in said[2]
    assert said[-1].endswith("earmark resume --allow-rejects")
    assert str(caught.value).replace("\n", "").isprintable()
    assert open_store(str(tmp_path / "store")).versions("mos-preferences") == []
    paid = asked(server)
    assert 2 * FIRST <= paid < 120  # what was in flight came home; the others, some 250, were not sent
    (note,) = caught.value.__notes__
    assert note.splitlines()[1].startswith("  paired_critiques (critic, openai:tiny): ")
    assert "0 passed (" in note
    with pytest.raises(TooManyRejects, match="of the first 20 rows none passed"):  # kept rejects count
        build_version(many, tmp_path / "store")
    assert asked(server) < paid + 60
    version = build_version(many.model_copy(update={"most_rejected": None}), tmp_path / "store")
    assert version.manifest.rejects["bad_answer"] == len(rows_of(version, "pairs"))


@pytest.mark.slow
def test_of_few_rows_all_must_fail(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: FORMLESS
    with pytest.raises(TooManyRejects, match="of the first 6 rows none passed 'paired_critiques'"):
        build_version(config(study, server, pairs=6), tmp_path / "store")
    assert asked(server) == 12
    server.answer = critic_answer
    version = build_version(config(study, server, pairs=6, seed=5), tmp_path / "store")
    assert rows_of(version, "paired_critiques")


@pytest.mark.slow
def test_a_rule_of_the_method_is_no_form(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    """More pairs than `most_rejected` disagree with the listeners, and the build commits."""
    version = build_version(config(study, server, tries=1, most=0.0), tmp_path / "store")
    assert version.manifest.rejects["scores_disagree"] > 0.2 * 45


@pytest.mark.slow
def test_rejects_for_form_count_as_faults(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    better = {True: comparison(8, 2), False: comparison(2, 8)}

    def answer(body: dict[str, Any], content: str) -> str:
        if int(content[:2], 16) % 2 == 0:  # about half of all draws
            return FORMLESS
        return better[int(content[2], 16) % 2 == 0]

    server.answer = answer
    with pytest.raises(TooManyRejects) as caught:
        build_version(config(study, server, tries=1), tmp_path / "store")
    head = str(caught.value).splitlines()[0]
    assert "of 45 rows have no answer of the right form to 'paired_critiques' (critic, openai:tiny), " in head
    assert "more than most_rejected = 0.2; nothing was committed" in head
    paid = asked(server)
    version = build_version(config(study, server, tries=1, most=0.9), tmp_path / "store")
    assert asked(server) == paid
    assert version.manifest.rejects["bad_answer"] > 9


@pytest.mark.slow
def test_a_build_that_its_server_ends_says_where_its_rows_are(
    study: Path, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: dict[str, Any], content: str) -> str:
        if asked(server) > 30:
            server.faults.rate, server.faults.kinds, server.faults.most = 1.0, ("unauthorized",), None
        return critic_answer(body, content)

    server.answer = answer
    with pytest.raises(EarmarkError) as caught:
        build_version(config(study, server, tries=1), tmp_path / "store")
    (note,) = caught.value.__notes__
    head, line, *more = note.splitlines()
    assert head.endswith("the ledger keeps every answer:")
    assert line.startswith("  paired_critiques (critic, openai:tiny): ")
    assert "scores_disagree" in line
    assert any("one of these answers to 'paired_critiques'" in one for one in more)
    assert not isinstance(caught.value, TooManyRejects)
    server.faults.rate = 0.0
    server.answer = critic_answer
    version = build_version(config(study, server, tries=1), tmp_path / "store")
    calm = build_version(config(study, server, tries=1), tmp_path / "calm")
    assert contents_of(version.folder) == contents_of(calm.folder)


def test_the_command_ends_with_these_lines(
    study: Path, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fail() -> None:
        build_version(config(study, server, pairs=2), tmp_path / "store")

    server.answer = lambda body, content: FORMLESS
    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert any(line.startswith("error: mos-preferences: of the first 2 rows none passed") for line in lines)
    assert lines[-2:] == [
        "rows by question:",
        "  paired_critiques (critic, openai:tiny): 2 came, 0 passed (2 bad_answer)",
    ]
    assert "\x1b" not in "".join(lines)


def test_prompts_try_shows_an_answer_that_its_check_refuses(study: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = lambda body, content: FORMLESS
    path = write_config(study, server.base_url, PAIRS)
    words = ["prompts", "try", "mos-preferences", "--config", str(path), "--limit", "3", "--json"]
    said = CliRunner().invoke(cli.app, [*words, "--store", str(tmp_path / "store")])
    assert said.exit_code == 0, said.output
    shown = json.loads(said.stdout)["questions"]
    assert [one["fault"][0] for one in shown] == ["bad_answer"] * 3
    assert {one["answer"] for one in shown} == {FORMLESS}
    assert asked(server) == 3


def test_roles_are_told_apart_in_the_progress(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        "earmark.tasks.pipeline.progress.Display.start", lambda self, label, total: told.append(label) or 0
    )
    writer, judge = config_for(server), config_for(server)
    with Sessions(Store(tmp_path)) as sessions:
        sessions.of({"writer": writer, "judge": judge, "labeller": judge})
    assert told == ["ask writer (openai:tiny)", "ask judge, labeller (openai:tiny)"]


@pytest.mark.slow
def test_an_annotator_without_questions_does_not_say_that_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    monkeypatch.setattr(AnnotatorConfig, "stalled_after_s", 0.2)

    async def story() -> None:
        started = await serving(Faults())
        config = config_for(started)
        arriving: asyncio.Queue[Any] = asyncio.Queue()
        async with (
            open_ledger(tmp_path / "l.sqlite") as ledger,
            Annotator(config, ledger, on_progress=seen.append) as annotator,
        ):
            streaming = asyncio.create_task(annotator.stream(arriving, lambda key, outcome: None))
            await arriving.put(requests_for(config, 1))
            await asyncio.sleep(2.5)  # an answer, and then nothing to do
            await arriving.put(None)
            await streaming
        await started.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert "nothing completed" not in caplog.text
    assert not [look.waiting for look in seen if look.waiting]


def test_a_wait_is_counted_from_the_moment_that_something_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("earmark.tasks.annotation.progress.time.monotonic", lambda: now)
    meter = Meter(0)
    now = 500.0
    assert meter.still_s() == 0.0
    meter.add(2)
    now = 503.0
    assert meter.still_s() == 3.0
    meter.finished(failed=False)
    now = 510.0
    assert meter.still_s() == 7.0
    meter.finished(failed=True)
    now = 900.0
    assert meter.still_s() == 0.0


def test_an_error_in_counting_what_was_lost_does_not_hide_the_build_s_own(tmp_path: Path) -> None:
    stage = Stage(Store(tmp_path), "mos-preferences", "key", tmp_path / "stage")
    torn = stage.work / "ask/draws/0.parquet"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"torn")
    error = EarmarkError("the build's own")
    tell_losses(error, stage)
    assert str(error) == "the build's own"
    assert ["could not be counted" in note for note in error.__notes__] == [True]
