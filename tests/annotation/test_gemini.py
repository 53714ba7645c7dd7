"""Gemini's protocol: parts, files that are reused while they live, schemas, faults and batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.schemas.questions import Audio, Json, Message, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.errors import AuthFailed
from earmark.tasks.annotation.request import Answer, Request
from tests.annotation.conftest import SCHEMA, Bench, config_for, requests_for
from tests.servers.faults import Faults
from tests.servers.gemini_server import GeminiServer

GEMINI = {"annotator": "gemini:gemini-2.5-pro"}
MEDIA = Media(load_audio=lambda part: part.sha256.encode() * 100)


def pair(config: Any, number: int) -> Request:
    """A request with two clips."""
    a, b = (Audio(f"{n:064x}", f"{n}.wav", duration_s=5) for n in (number, number + 1))
    return question(config, [Message.of("system", "judge"), Message.of("user", "A:", a, "B:", b)], Json.of(SCHEMA))


def test_inline_audio_stands_between_its_words(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await GeminiServer().start()
        config = config_for(server, **GEMINI, seed=5, prices=Prices(input_per_million=1, output_per_million=2))
        bench = Bench(tmp_path / "l.sqlite", server)
        report = await bench.ask(config, [pair(config, 0)], MEDIA)
        (answer,) = report.outcomes
        assert isinstance(answer, Answer)
        assert answer.model == "gemini-2.5-pro-001"
        assert report.spent_usd == pytest.approx((80 * 1 + 25 * 2) / 1e6)
        (body,) = server.bodies
        assert [next(iter(part)) for part in body["contents"][0]["parts"]] == ["text", "inlineData"] * 2
        assert body["systemInstruction"] == {"parts": [{"text": "judge"}]}
        assert body["generationConfig"]["responseJsonSchema"] == SCHEMA
        assert (body["generationConfig"]["seed"], server.uploads) == (5, 0)
        yes = await bench.ask(config, [question(config, [Message.of("user", "any drums?")], YesNo())])
        assert isinstance(yes.outcomes[0], Answer)
        assert yes.outcomes[0].value["p_yes"] == pytest.approx(0.832, abs=1e-3)
        await server.stop()

    run(story)


def test_large_media_are_uploaded_once_and_again_when_they_expire(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        server = await GeminiServer().start()
        monkeypatch.setattr(AnnotatorConfig, "files_api_bytes", 100)
        config = config_for(server, **GEMINI)
        bench = Bench(tmp_path / "l.sqlite", server)
        assert (await bench.ask(config, [pair(config, n) for n in range(10)], MEDIA)).answered == 10
        assert server.uploads == 11  # clips 0 to 10
        assert (await bench.ask(config, [pair(config, 10)], MEDIA)).answered == 1
        assert server.uploads == 12  # clip 10 is found by name
        for held in server.files.values():
            held["expirationTime"] = "2020-01-01T00:00:00Z"
        assert (await bench.ask(config, [pair(config, 11)], MEDIA)).answered == 1
        assert server.uploads == 14
        await server.stop()

    run(story)


def test_faults_and_batches(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        kinds = ("429", "500", "503", "reset", "truncated_json", "wrong_content_type", "refusal", "text_around")
        server = await GeminiServer(Faults(rate=0.3, kinds=kinds, most=2)).start()
        live = config_for(server, **GEMINI)
        one = await Bench(tmp_path / "a.sqlite", server).ask(live, requests_for(live, 80))
        assert one.answered + one.rejected == 80
        assert set(one.reasons()) <= {"refused"}
        server.faults.rate = 0.0
        batch = config_for(server, **GEMINI, batch=True, batch_poll_s=0.05, batch_settle_s=0.2, batch_requests=30)
        two = await Bench(tmp_path / "b.sqlite", server).ask(batch, requests_for(batch, 80))
        assert (two.answered, len(server.batches)) == (80, 3)
        again = await Bench(tmp_path / "a.sqlite", server).ask(live, requests_for(live, 80))
        assert again.outcomes == one.outcomes
        await server.stop()

    run(story)


def test_a_wrong_key_stops_the_run(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "wrong-key-0123456789")
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)

    async def story() -> None:
        server = await GeminiServer().start()
        server.expected_key = "right"
        monkeypatch.setenv("EARMARK_KEY_HOSTS", f"GEMINI_API_KEY=127.0.0.1:{server.port}")
        config = config_for(server, **GEMINI)
        with pytest.raises(AuthFailed, match="check the key"):
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        await server.stop()

    run(story)
