"""Lists of a prompt's generations, and the matrix of models, against a count in plain Python."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.versions import Version
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.human_preferences import votes
from tests.pseudo_preferences.music import Row, build_judged, config_of, make_pool
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer


def listed(version: Version, name: str, dimension: str, spill: Path) -> list[Row]:
    with connect(spill) as db:
        for table in find_corpus(version.corpus).tables:
            files = version.files(table.name) if table.name in version.manifest.rows else []
            view_parquet(db, table.name, files, table.schema)
        rows: list[Row] = db.sql(query(name), params={"dimension": dimension}).to_arrow_table().to_pylist()
    return rows


@pytest.mark.slow
def test_generations_are_ranked_by_the_pairs_that_they_win(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool", 5)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        version = build_judged(config_of(tmp_path / "pool", server.base_url), tmp_path / "store")
    clips = {row["generation_id"]: row["clip_sha256"] for row in rows_of(version, "clips")}
    won: dict[str, dict[str, list[Fraction]]] = defaultdict(lambda: defaultdict(list))
    beats: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for row in rows_of(version, "labels"):
        for_a = {"a": Fraction(1), "tie": Fraction(1, 2), "b": Fraction(0)}[row["musicality"]]
        for mine, side, other in ((for_a, "a", "b"), (1 - for_a, "b", "a")):
            won[row["prompt_id"]][clips[row[f"generation_{side}"]]].append(mine)
            beats[row[f"model_{side}"], row[f"model_{other}"]].append(mine)
    rows = listed(version, "pseudo_preferences/listed", "musicality", tmp_path)
    assert {row["id"].partition("/")[0] for row in rows} == won.keys()
    for row in rows:
        scores = {clip: sum(points) / len(points) for clip, points in won[row["id"].partition("/")[0]].items()}
        assert dict(zip(row["audios"], row["scores"], strict=True)) == pytest.approx(scores)
        assert row["ranks"] == [1 + sum(other > scores[clip] for other in scores.values()) for clip in row["audios"]]
    card = (version.folder / "README.md").read_text("utf-8").split("## Which model is preferred: musicality\n")[1]
    table = [line.strip("| ").split(" | ") for line in card.split("\n## ")[0].splitlines() if line.startswith("| ")]
    names = table[0][3:]
    assert len(names) > 2
    for name, _, _, *cells in table[1:]:
        for other, cell in zip(names, cells, strict=True):
            points = beats.get((name, other))
            assert cell == (f"{100 * float(sum(points) / len(points)):.1f} %" if points else "–")


@pytest.mark.slow
def test_peoples_lists_weigh_their_votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", votes.SALT)
    make_pool(tmp_path / "pool", 1)
    audio = [row.name for row in sorted((tmp_path / "pool/clips").iterdir())][:3]
    cast = []
    for first, second, sure, side in ((0, 1, 4.0, "a"), (0, 1, 2.0, "b"), (1, 2, 3.0, "a"), (0, 2, 5.0, "a")):
        pair = {"audio-path": f"clips/{audio[first]}", "audio2": f"clips/{audio[second]}"}
        said = {"preference-musicality": f"model_{side}", "confidence_preference-musicality": sure}
        cast.append(votes.vote(0, f"w{len(cast)}", **pair, **said))
    source = votes.cmi(tmp_path / "pool", cast, split="train")
    version = votes.build_votes(votes.config_of(tmp_path / "pool", source, audio="index"), tmp_path / "store")
    (row,) = listed(version, "human_preferences/listed", "musicality", tmp_path)
    files = {row["clip_sha256"]: row["file"] for row in rows_of(version, "clips")}
    assert [files[clip] for clip in row["audios"]] == [f"clips/{name}" for name in audio]
    assert row["scores"] == pytest.approx([9 / 11, 5 / 9, 0.0])
    assert row["ranks"] == [1, 2, 3]
