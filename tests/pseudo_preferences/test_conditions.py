"""What a generation was given: only those that got the same are compared, and the judge gets no more than they did."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.music import conditions
from earmark.tasks.store.versions import verify
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.captions import captions
from tests.pseudo_preferences.music import Row, build_judged, config_of, generation_row, prompt_row, write_rows
from tests.servers.faults import Faults
from tests.servers.openai_server import caption_answer, listening_answer

GIVEN: dict[str, Any] = {
    "ant": None, "bee": ["lyrics", "text", "reference"],  # the same: all that the prompt has
    "cat": "text", "dog": "text",
    "elk": "text+caption", "fox": ["caption", "text"],
    "gnu": "lyrics+reference",  # nobody else got that
}  # fmt: skip


def make(folder: Path, **prompt: Any) -> None:
    folder.mkdir(parents=True)
    asked = prompt_row(folder, 3) | prompt
    made: list[Row] = [generation_row(folder, 3, model) | {"conditioned_on": given} for model, given in GIVEN.items()]
    write_rows(folder / "prompts.jsonl", [asked])
    write_rows(folder / "generations.jsonl", made)


def words_and_sounds(body: dict[str, Any]) -> tuple[str, int]:
    parts = [part for message in body["messages"][1:] for part in message["content"]]
    return "".join(part.get("text", "") for part in parts), sum(part["type"] == "input_audio" for part in parts)


@pytest.mark.slow
def test_the_judge_gets_what_both_generations_got(tmp_path: Path) -> None:
    make(tmp_path / "pool", reference_caption="Slow strings in a hall.")
    bodies: list[dict[str, Any]] = []
    with LocalServer(Faults()) as server:
        server.answer = lambda body, content: bodies.append(body) or listening_answer(body, content)
        version = build_judged(config_of(tmp_path / "pool", server.base_url), tmp_path / "store")
    assert verify(version) == []
    pairs = {frozenset((row["model_a"], row["model_b"])): row for row in rows_of(version, "pairs")}
    same = [("ant", "bee"), ("cat", "dog"), ("elk", "fox")]
    assert pairs.keys() == {frozenset(pair) for pair in combinations(GIVEN, 2) if pair in same}
    by_pair = {pair: pairs[frozenset(pair)] for pair in same}
    assert [row["conditioned_on"] for row in by_pair.values()] == ["text+lyrics+reference", "text", "text+caption"]
    assert [row["modality"] for row in by_pair.values()] == ["text+lyrics+audio", "text", "text"]
    assert [row["lyrics"] is None for row in by_pair.values()] == [False, True, True]
    assert [row["reference_sha256"] is None for row in by_pair.values()] == [False, True, True]
    shown = [words_and_sounds(body) for body in bodies]
    assert len(shown) == 6
    for text, sounds in shown:
        assert "63 beats" in text
        assert ("la la 3" in text) is (sounds == 3) is ("The reference clip that" in text)
    assert sorted((sounds, "Slow strings" in text) for text, sounds in shown) == [
        *[(2, False)] * 2, *[(2, True)] * 2, *[(3, False)] * 2
    ]  # fmt: skip


@pytest.mark.slow
def test_a_caption_of_the_reference_comes_from_captions(tmp_path: Path) -> None:
    make(tmp_path / "pool")
    (tmp_path / "pool/tracks.csv").write_text(
        "track_id,audio,artist_id,tags\nt0,references/p003.flac,a0,instrument---piano\n"
    )
    with LocalServer(Faults()) as server:
        server.answer = caption_answer
        heard = captions.build_captions(
            captions.config_of(tmp_path / "pool", captions.direct(server.base_url)), tmp_path / "store"
        )
        (caption,) = (row["text"] for row in rows_of(heard, "captions"))
        server.answer = listening_answer
        config = config_of(tmp_path / "pool", server.base_url, reference_captions="captions@v1")
        version = build_judged(config, tmp_path / "store")
        bare = build_judged(config_of(tmp_path / "pool", server.base_url), tmp_path / "bare")
    (spoken,) = (row["text"] for row in rows_of(version, "pairs") if row["conditioned_on"] == "text+caption")
    assert spoken.endswith(f"The reference clip in words: {caption}")
    assert [(one.corpus, one.digest) for one in version.manifest.parents] == [("captions", heard.manifest.digest())]
    lacking = [row for row in rows_of(bare, "rejects") if row["reason"] == "condition_missing"]
    assert sorted(row["item"].split("-")[1] for row in lacking) == ["elk", "fox"]
    assert {row["detail"] for row in lacking} == {"expected caption in the prompt, found text+lyrics+reference"}


def test_words_of_conditions() -> None:
    assert conditions("") is conditions(None) is None
    assert conditions(" reference + Text ") == conditions(["text", "reference"]) == "text+reference"
    with pytest.raises(BadRow, match="expected text, lyrics, reference, caption, found 'video'"):
        conditions("text+video")
