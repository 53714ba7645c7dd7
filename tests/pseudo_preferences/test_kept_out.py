"""`decontaminate` keeps people's test set out of pseudo labels: a search over all columns of all tables."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.store.versions import Version, verify
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.human_preferences import votes
from tests.human_preferences.test_released_votes import exported
from tests.pseudo_preferences.music import Row, build_judged, config_of, generation_row, prompt_row, write_rows
from tests.pseudo_preferences.test_released_labels import released_config
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", votes.SALT)


def plain(value: Any) -> str:
    return re.sub(r"\s+", " ", value).strip().casefold()


def traces(version: Version, wanted: set[str], split: str | None = None) -> set[str]:
    """Which of these stand in any column of any table but `rejects`, whole or as a part of a text."""
    seen: set[str] = set()
    for table in version.manifest.rows:
        for row in rows_of(version, table) if table != "rejects" else ():
            if split is None or row.get("split") == split:
                words = plain(repr([value for name, value in row.items() if name != "audio"]).replace("\\n", " "))
                seen |= {one for one in wanted if one in words}
    return seen


@pytest.mark.slow
def test_nothing_that_people_tested_is_in_pseudo_labels(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    prompts = [prompt_row(pool, number) for number in range(12)]
    prompts[4]["text"] = "A TUNE  in 60 beats a minute"  # prompt 0's words, in another spelling
    prompts[5]["lyrics"] = "la la 3\nLA"  # prompt 3's lyrics under another text
    prompts[6]["reference_audio"] = "references/again.flac"  # prompt 2's reference under another name
    (pool / "references/again.flac").write_bytes((pool / "references/p002.flac").read_bytes())
    made = [generation_row(pool, number, model) for number in range(12) for model in ("ant", "bee")]
    (pool / made[15]["audio"]).write_bytes((pool / "clips/p001-bee-1.flac").read_bytes())  # of prompt 7
    write_rows(pool / "prompts.jsonl", prompts)
    write_rows(pool / "generations.jsonl", made)
    cast: list[Row] = []
    for number, row in enumerate(prompts[:4]):
        sides = dict(zip(("audio-path", "audio2"), (one["audio"] for one in made[2 * number :]), strict=False))
        held = {"lyrics": row.get("lyrics", ""), "ref-audio-path": row.get("reference_audio", "")}
        cast.append(votes.vote(number, prompt=row["text"], **sides, **held, **{"prompt id": row["prompt_id"]}))
    source = votes.cmi(pool, cast, split="test")
    people = votes.build_votes(votes.config_of(pool, source, audio="index"), tmp_path / "store")
    files = {row[name] for row in cast for name in ("audio-path", "audio2", "ref-audio-path") if row[name]}
    wanted = {hashlib.sha256((pool / name).read_bytes()).hexdigest() for name in files}
    wanted |= {plain(row[name]) for row in cast for name in ("prompt", "lyrics") if row[name]}
    assert len(wanted) == 8 + 2 + 4 + 2
    assert traces(people, wanted) == wanted
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        bare = build_judged(config_of(pool, server.base_url), tmp_path / "bare")
        keep_out = {"against": ["human-preferences@v1"]}
        version = build_judged(config_of(pool, server.base_url, decontaminate=keep_out), tmp_path / "store")
    assert verify(version) == []
    assert len(traces(bare, wanted)) > len(wanted) / 2
    assert traces(version, wanted) == set()
    assert {row["prompt_id"] for row in rows_of(version, "pairs")} == {"p008", "p009", "p010", "p011"}
    assert [(one.corpus, one.digest) for one in version.manifest.parents] == [
        ("human-preferences", people.manifest.digest())
    ]
    files_out = [file.name for file in exported(bare, tmp_path / "out", "pseudo-preferences", "labels")]
    released = build_judged(released_config(tmp_path / "out", *files_out, decontaminate=keep_out), tmp_path / "store")
    assert traces(released, wanted) == set()
    assert 0 < released.manifest.rows["labels"]["train"] < bare.manifest.rows["labels"]["train"]
    assert {row["reason"] for row in rows_of(released, "rejects")} <= {"decontaminated"}
