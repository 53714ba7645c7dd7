"""Any clip judged against any instruction: `earmark eval rubric`."""

from __future__ import annotations

import csv
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import earmark
from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.instruction_rubrics import CORPUS
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.instruction_rubrics.judging import by_model, judge_clips, writing
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import build_rubrics, config_of, items_of, said_to, write_captions
from tests.servers.openai_server import OpenAIServer

JUDGE, WRITER = "builtin:rubric-judge-1", "builtin:rubric-writer-1"
TEXTS = [
    "A fast jazz piece with a bright piano, loud and heavy.",
    "A slow folk tune for the flute, quiet and dark.",
    "An upbeat rock song, crisp guitars and soft drums.",
    "A calm waltz for violin, warm and gentle.",
]

server = model_server(keep_bodies=True)


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.slow
def test_a_clip_scores_as_it_does_on_a_version_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    verify = {"positives": "none", "swaps": "none", "changes": "none"}
    source = write_captions(tmp_path, "real", TEXTS, verify=verify)
    models = {"judge": {"annotator": JUDGE}, "writer": {"annotator": WRITER}}
    config = config_of(tmp_path, source, bench_share=0.0, languages=["en"], **models)
    store = Store(tmp_path / "store")
    version = build_rubrics(config, store.root)
    samples = rows_of(version, "samples")
    assert len(samples) == 2 * len(TEXTS)
    files = {row["clip_sha256"]: f"{n}.wav" for n in range(len(TEXTS)) for row in samples if row["truth"] == TEXTS[n]}
    rows = [
        {"clip": files[row["clip_sha256"]], "instruction": row["instruction"], "domain": "music"} for row in samples
    ]
    before = asked(store)
    judged = judge_clips(table(tmp_path / "clips.csv", rows), store, Examinee(annotator=JUDGE), config, domain="music")
    assert asked(store) - before == len({(row["clip"], item["question"]) for row in judged for item in row["items"]})
    wish = MeasurementOptions("alignment", "rubric", SamplePart("all"))
    before = asked(store)
    _, folder = judging.judge(version, CORPUS, store, Examinee(annotator=JUDGE), wish, tmp_path / "out")
    assert asked(store) == before
    scores = {one["id"]: one["score"] for one in predictions(folder)}
    assert [row["score"] for row in judged] == [scores[f"{row['sample_id']}-en"] for row in samples]
    assert len({row["score"] for row in judged}) > 1
    for row in judged:
        assert row["score"] == pytest.approx(sum(item["score"] for item in row["items"]) / len(row["items"]))
        assert row["follows"] == all(item["score"] > 0.5 for item in row["items"])


def asked(store: Store) -> int:
    import sqlite3

    with sqlite3.connect(store.root / "ledger.sqlite") as connection:
        return int(connection.execute("SELECT count(*) FROM requests").fetchone()[0])


def predictions(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(folder / "predictions.parquet").to_pylist()
    return rows


def test_scores_by_model_and_their_correlation_with_ratings_in_two_languages(tmp_path: Path) -> None:
    write_captions(tmp_path, "real", TEXTS)
    texts = [*TEXTS, "一首快速明亮的钢琴曲。", "一首缓慢安静的长笛曲。"]
    rows: list[dict[str, Any]] = [
        {"clip": f"{at % 4}.wav", "instruction": text, "model": "ab"[at % 2], "rating": (7 * at) % 5}
        for at, text in enumerate(texts)
    ]
    rows.append({"clip": "none.wav", "instruction": "A dog barks.", "model": "a", "rating": ""})
    path, out = table(tmp_path / "clips.csv", rows), tmp_path / "judged.jsonl"
    told = ("eval", "rubric", "--clips", path, "--model", JUDGE, "--writer", WRITER, "--domain", "music")
    run = CliRunner().invoke(app, [*map(str, told), "--store", str(tmp_path / "store"), "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert "without an answer: none.wav: file_missing" in run.output
    judged = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["language"] for row in judged] == [*["en"] * 4, "zh", "zh", "en"]
    (whole, *models) = by_model(judged).rows
    answered = [row for row in judged if row["score"] is not None]
    assert whole[1:3] == (7, 6)
    assert whole[3] == pytest.approx(sum(row["score"] for row in answered) / 6)
    assert [row[:3] for row in models] == [("a", 4, 3), ("b", 3, 3)]
    pairs = [(one, two) for one, two in combinations(answered, 2)]
    signs = [_sign(one["score"] - two["score"]) * _sign(one["rating"] - two["rating"]) for one, two in pairs]
    untied = [sum(_sign(one[name] - two[name]) != 0 for one, two in pairs) for name in ("score", "rating")]
    assert whole[-1] == pytest.approx(sum(signs) / (untied[0] * untied[1]) ** 0.5)
    frame = earmark.rubric(path, JUDGE, writer=WRITER, domain="music", store=tmp_path / "store")
    assert frame["score"].tolist()[:6] == [row["score"] for row in judged[:6]]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def test_all_items_in_one_array_have_their_evidence(tmp_path: Path, server: OpenAIServer) -> None:
    """A folder of clips with texts; the judge itself takes them apart, and numbers its answers from 0."""

    def answer(body: dict[str, Any], content: str) -> str:
        name = body["response_format"]["json_schema"]["name"]
        if "decompose" in name:
            return json.dumps({"items": items_of("a flute, a drum, a harp")})
        if "filter" in name:
            return json.dumps({"items": [{"id": n, "verdict": "keep"} for n in (1, 2, 3)]})
        answers = ["yes", "yes", "no"] if "two" in said_to(body) else ["yes"] * 3
        return json.dumps([{"id": n, "answer": one, "evidence": f"Heard {n}."} for n, one in enumerate(answers)])

    server.answer = answer
    write_captions(tmp_path, "real", ["one", "two"])
    for number, said in enumerate(("one: a flute, a drum, a harp", "two: a flute, a drum, a harp")):
        (tmp_path / f"{number}.txt").write_text(said, "utf-8")
    judge = Examinee(annotator="openai:m", base_url=server.base_url)
    wording = writing(None, "openai:m", server.base_url, None)
    rows = judge_clips(tmp_path, Store(tmp_path / "store"), judge, wording, mode="array")
    assert [row["score"] for row in rows] == [1.0, pytest.approx(2 / 3)]
    assert [row["follows"] for row in rows] == [True, False]
    assert [item["evidence"] for item in rows[1]["items"]] == ["Heard 0.", "Heard 1.", "Heard 2."]


def test_what_cannot_be_judged_is_one_line(tmp_path: Path) -> None:
    judge, wording = Examinee(annotator=JUDGE), writing(WRITER, JUDGE, None, None)
    store = Store(tmp_path / "store")
    with pytest.raises(InputError, match="expected a text file for each clip"):
        judge_clips(tmp_path, store, judge, wording)
    path = table(tmp_path / "clips.csv", [{"clip": "0.wav", "instruction": ""}])
    with pytest.raises(InputError, match="row 1: expected a clip, an instruction"):
        judge_clips(path, store, judge, wording)
    path = table(tmp_path / "clips.csv", [{"clip": "0.wav", "instruction": "A dog."}])
    with pytest.raises(EarmarkError, match=r"none of 1 clips has an answer, first 0\.wav: file_missing"):
        judge_clips(path, store, judge, wording)
    rows = [{"clip": f"{at}.wav", "instruction": TEXTS[at], "rating": rating} for at, rating in enumerate(("4", "n/a"))]
    with pytest.raises(InputError, match=r"clips\.csv, row 2: expected a number as rating, found 'n/a'"):
        judge_clips(table(tmp_path / "clips.csv", rows), store, judge, wording)
