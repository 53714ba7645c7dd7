"""A build that lost too much of its inputs, or all of its main table, commits nothing and says what mends it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.flows.command.console import notes_of
from earmark.schemas.errors import TooManyRejects
from earmark.tasks.pipeline.funnel import SourceLosses, lost
from earmark.tasks.store.runs import list_runs
from earmark.tasks.store.versions import Version, open_store, verify
from tests.builds import build_version, config_of, rows_of
from tests.captions import captions
from tests.flows.test_cli import earmark
from tests.human_preferences import votes
from tests.human_preferences.test_human_preferences import arena_row
from tests.instrumentals.separating import build_separated, make_tracks
from tests.instrumentals.separating import config_of as separating

COLUMNS = {"file": "f", "mos": "m"}


def a_list(folder: Path, name: str, scores: list[Any], **values: Any) -> dict[str, Any]:
    """A source of rated clips: one row a score."""
    rows = [f"{name}-{number}.wav,{score}" for number, score in enumerate(scores)]
    (folder / f"{name}.csv").write_text("\n".join(["f,m", *rows]) + "\n")
    return {"name": name, "format": "table", "files": {"train": f"{name}.csv"}, "columns": COLUMNS, **values}


def refusal(folder: Path, *sources: dict[str, Any], **values: Any) -> list[str]:
    """The lines of a build that commits nothing."""
    held = {"most_rejected": 0.2, **values}
    with pytest.raises(TooManyRejects) as caught:
        build_version(config_of(folder, *sources, **held), folder / "store")
    assert open_store(str(folder / "store")).versions("mos-preferences") == []
    return str(caught.value).splitlines()


def committed(folder: Path, *sources: dict[str, Any], **values: Any) -> Version:
    """The version of a build that commits."""
    version = build_version(config_of(folder, *sources, **{"most_rejected": 0.2, **values}), folder / "store")
    assert verify(version) == []
    return version


def test_a_list_with_a_header_only(tmp_path: Path) -> None:
    said = refusal(tmp_path, a_list(tmp_path, "one", []))
    assert said[0] == "mos-preferences: the main table 'pairs' would be empty; nothing was committed"
    assert said[1] == "step import-one: 0 list rows came in, none was kept"
    assert "one/one.csv holds no rows" in said[2]
    assert said[-1].endswith("earmark resume --allow-rejects")
    empty = committed(tmp_path, a_list(tmp_path, "one", []), most_rejected=None)
    assert notes_of(empty)[-1] == "no rows: pairs, the main table, is empty; its rejects say why"


@pytest.mark.slow
def test_a_forgotten_scale(tmp_path: Path) -> None:
    scores = [*[1 + number % 5 for number in range(29)], *range(20, 391)]
    said = refusal(tmp_path, a_list(tmp_path, "real", scores))
    assert said[0] == (
        "mos-preferences: source real lost 371 of 400 list rows to faults, more than most_rejected = 0.2; "
        "nothing was committed"
    )
    assert said[1] == "  371  score_out_of_scale  real/real.csv line 31: expected a score from 1 to 5, found 20"
    assert said[2].split()[:6] == ["option", "sources.scale:", "Lowest", "and", "highest", "possible"]
    assert len(said) == 6
    assert sum(committed(tmp_path, a_list(tmp_path, "real", scores, scale=[0, 400])).manifest.rows["ratings"].values())


def test_a_wrong_folder_of_audio(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    one = a_list(tmp_path, "one", [1, 2, 3, 4, 5], audio_root="wrong")
    said = refusal(tmp_path, one, audio="index")
    assert "source one lost 5 of 5 clips to faults" in said[0]
    assert said[1].startswith("  5  file_missing  one/one.csv line 2: expected an audio file, found nothing at")
    assert "option sources.audio_root:" in said[2]


def test_every_clip_is_too_short(tmp_path: Path) -> None:
    make_tracks(tmp_path, 6, seconds=0.3)
    config = separating(tmp_path, length_s=[2.0, 7200.0], most_rejected=0.2)
    with pytest.raises(TooManyRejects) as caught:
        build_separated(config, tmp_path / "store")
    said = str(caught.value).splitlines()
    assert said[0] == "instrumentals: the main table 'tracks' would be empty; nothing was committed"
    assert said[1] == "step index: 6 tracks came in, none was kept"
    assert said[2] == "  6  audio_too_short  tracks.jsonl line 1: expected at least 2.0 s, found 0.3"
    assert "option length_s:" in said[3]
    version = build_separated(config.model_copy(update={"most_rejected": None}), tmp_path / "store")
    assert version.manifest.rows["tracks"] == {"train": 0}


@pytest.mark.slow
def test_what_the_method_drops_is_no_fault(tmp_path: Path) -> None:
    """Ties of an arena: nine votes of ten leave by a rule, and the build commits."""
    rows = [arena_row(number, "TIE" if number else "A") for number in range(10)]
    votes.write_jsonl(tmp_path / "arena.jsonl", rows)
    source = {"name": "arena", "format": "music-arena", "files": ["arena.jsonl"]}
    version = votes.build_votes(votes.config_of(tmp_path, source, audio="none", most_rejected=0.0), tmp_path / "store")
    assert version.manifest.rejects == {"tie": 9}


@pytest.mark.slow
def test_each_source_counts_for_itself(tmp_path: Path) -> None:
    """21 % of a small source beside a large one without fault; 20 % is not more than 0.2."""
    clean = a_list(tmp_path, "clean", [1 + number % 5 for number in range(2000)])
    faulty = a_list(tmp_path, "faulty", [*["?"] * 21, *[1 + number % 5 for number in range(79)]])
    said = refusal(tmp_path, clean, faulty)
    assert said[0].startswith("mos-preferences: source faulty lost 21 of 100 list rows to faults")
    assert "clean" not in "\n".join(said)
    faulty = a_list(tmp_path, "faulty", [*["?"] * 20, *[1 + number % 5 for number in range(80)]])
    assert committed(tmp_path, clean, faulty).manifest.rejects == {"score_not_a_number": 20}


def test_both_sources_are_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, *(a_list(tmp_path, name, ["?", "", 3, 4]) for name in ("one", "two")))
    assert "source one lost 2 of 4 list rows" in said[0]
    assert any(line.startswith("source two lost 2 of 4 list rows") for line in said)


def test_another_limit_makes_no_other_version(tmp_path: Path) -> None:
    one = a_list(tmp_path, "one", ["?", *[1, 2, 3, 4]])
    version = committed(tmp_path, one)
    assert "most_rejected" not in version.manifest.config
    assert committed(tmp_path, one, most_rejected=1.0).name == committed(tmp_path, one, most_rejected=None).name == "v1"


@pytest.mark.slow
def test_1_allows_any_share_but_no_empty_table(tmp_path: Path) -> None:
    assert rows_of(committed(tmp_path, a_list(tmp_path, "one", ["?"] * 9 + [2, 3]), most_rejected=1.0), "pairs")
    (tmp_path / "other").mkdir()
    said = refusal(tmp_path / "other", a_list(tmp_path / "other", "one", ["?"] * 9), most_rejected=1.0)
    assert said[1] == "step import-one: 9 list rows came in, none was kept"
    assert said[2] == "  9  score_not_a_number  one/one.csv line 2: expected a score from 1 to 5, found '?'"


def test_text_from_outside_cannot_steer_a_terminal(tmp_path: Path) -> None:
    said = refusal(tmp_path, a_list(tmp_path, "one", ["\x1b]0;owned\x07\x1b[2J"] * 5))
    assert all(line.isprintable() for line in said)


def test_nothing_is_asked_before_the_check(tmp_path: Path) -> None:
    """Tracks without audio: no model is asked about the one that is left, and its answer would stay if it had been."""
    captions.write_tracks(tmp_path, 5)
    for number in range(4):
        (tmp_path / f"{number}.wav").unlink()
    config = captions.config_of(tmp_path, captions.direct("http://127.0.0.1:9/v1"), most_rejected=0.2)
    with pytest.raises(TooManyRejects, match=r"source tracks\.csv lost 4 of 5 tracks to faults"):
        captions.build_captions(config, tmp_path / "store")
    assert not (tmp_path / "store" / "ledger.sqlite").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)  # two builds, each with a Prefect server of its own
def test_the_command_says_it_and_commits_if_told_so(tmp_path: Path) -> None:
    """`build` ends with 1 and a few lines; `resume --allow-rejects` goes on from there; then all is as usual."""
    store, path = tmp_path / "store", tmp_path / "build.toml"
    a_list(tmp_path, "one", [*["?"] * 5, 1, 2, 3])
    path.write_text(
        'sources = [{ name = "one", format = "table", files = { train = "one.csv" }, '
        'columns = { file = "f", mos = "m" } }]\n'
    )
    ended = earmark(store, "build", "mos-preferences", "-c", path, code=1)
    said = ended.stderr[ended.stderr.index("error: ") :].splitlines()
    assert said[0].startswith("error: mos-preferences: source one lost 5 of 8 list rows to faults, more than")
    assert said[-1].endswith("earmark resume --allow-rejects")
    (run,) = list_runs(open_store(str(store)))
    assert run.state == "failed"
    assert run.error == said[0].removeprefix("error: ")
    assert not list(store.glob("mos-preferences/v*"))
    assert "mos-preferences v1" in earmark(store, "resume", "--allow-rejects").stdout
    assert "already up to date: v1" in earmark(store, "build", "mos-preferences", "-c", path).stdout


@given(st.lists(st.integers(0, 50), max_size=5))
def test_steps_of_one_source_lose_together(steps: list[int]) -> None:
    """What the shares of several steps say together is what is gone in the end, where no rule takes any."""
    left = start = 1000
    shares = []
    for number, faults in enumerate(steps):
        shares.append(SourceLosses(str(number), left, faults))
        left -= faults
    assert lost(shares) == Fraction(start - left, start)
    assert lost([SourceLosses("a", 0, 0)]) == 0
