"""Rows of `instruction-rubrics` in the languages of their captions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from earmark.schemas.instruction_rubrics import CaptionSource
from earmark.schemas.reasons import Reject
from earmark.tasks.instruction_rubrics.report import balance_table
from earmark.tasks.instruction_rubrics.sources import listed
from earmark.tasks.pipeline.report import sample
from earmark.tasks.store.sql import connect, query, view_parquet
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import (
    asked_for,
    build_rubrics,
    caption,
    config_of,
    fences,
    items_of,
    rubric_answer,
    write_captions,
)
from tests.servers.openai_server import OpenAIServer

server = model_server(rubric_answer, keep_bodies=True)


def test_chinese_captions_are_asked_about_in_chinese(tmp_path: Path, server: OpenAIServer) -> None:
    told = (
        ("街道上", "爵士", "男孩"),
        ("森林里", "民谣", "老人"),
        ("车站前", "摇滚", "女子"),
        ("海滩边", "古典", "乐队"),
    )
    texts = [
        f"{place}有一首{genre}乐曲，其中有{n + 20}次铃声，由{who}演奏" for n, (place, genre, who) in enumerate(told)
    ]
    source = write_captions(tmp_path, "zh", texts, language="zh")
    config = config_of(tmp_path, source, base_url=server.base_url, bench_share=0.0)

    def answer(body: dict[str, Any], content: str) -> str:
        if asked_for(body) == "decompose":
            return json.dumps({"items": [{**items_of(fences(body)[0][1])[0], "basis": "铃声"}]})
        if asked_for(body).startswith("perturb"):
            text = fences(body)[0][1]
            return json.dumps({"attribute": "instrument", "before": "铃声", "after": "鼓声", "also": [],
                               "caption": text.replace("铃声", "鼓声")})  # fmt: skip
        if asked_for(body) == "labels":
            return json.dumps({"items": [{"id": 1, "answer": "no", "rationale": "没有。"}]})
        return rubric_answer(body, content)

    server.answer = answer
    version = build_rubrics(config, tmp_path / "store")
    names = {body["response_format"]["json_schema"]["name"] for body in server.bodies}
    assert {"rubric-verify-zh", "rubric-labels-zh", "rubric-translate-en"} <= names
    assert "rubric-verify" not in names
    english = [row for row in rows_of(version, "samples") if row["language"] == "en"]
    assert english
    assert all(row["instruction"].startswith("Translated text") for row in english)


def test_a_caption_in_the_other_language_is_a_reject_that_names_the_option(
    tmp_path: Path, server: OpenAIServer
) -> None:
    texts = [f'A man says "你好你好你好" and {word} loudly.' for word in ("sings", "laughs", "coughs", "claps")]
    source = write_captions(tmp_path, "mixed", [*texts, "一位女士平静地说话，背景有鸟鸣。"])
    rows = list(listed(config_of(tmp_path, source, base_url=server.base_url), CaptionSource(**source)))
    assert [type(row).__name__ for row in rows] == [*4 * ["Instruction"], "Reject"]
    last = rows[-1]
    assert isinstance(last, Reject)
    assert (last.reason, last.detail[:28]) == ("not_in_language", "expected language = 'en', fo")


def test_rows_stay_in_the_language_of_their_captions_where_none_is_named(tmp_path: Path) -> None:
    english = write_captions(tmp_path, "english", map(caption, range(4)))
    chinese = ["钢琴独奏的慢板乐曲", "快速的吉他摇滚", "悠扬的长笛民谣", "低沉的大提琴圆舞曲"]
    source = write_captions(tmp_path, "chinese", chinese, first=4, language="zh")
    models = {"judge": {"annotator": "builtin:rubric-judge-1"}, "writer": {"annotator": "builtin:rubric-writer-1"}}
    verify = {"verify": {"positives": "none", "swaps": "none"}}
    sources = [{**one, **verify} for one in (english, source)]
    config = config_of(tmp_path, *sources, bench_share=0.0, languages=[], negatives=["swap", "judged"], **models)
    version = build_rubrics(config, tmp_path / "store")
    own = {"english": "en", "chinese": "zh"}
    for table in ("samples", "instructions", "items", "labels"):
        rows = rows_of(version, table)
        assert {(row["source"], row["language"]) for row in rows} == {*own.items()}, table
    assert Counter(row["source"] for row in rows_of(version, "samples")) == {"english": 8, "chinese": 8}
    assert all(row["original"] for row in rows_of(version, "instructions"))
    with connect(tmp_path / "spill") as db:
        for table in ("samples", "labels", "items"):
            view_parquet(db, table, version.files(table))
        db.execute(query("instruction_rubrics/shown"))
        counted: list[Any] = [row[3:5] for row in balance_table(db).rows]
        shown = sample(db, "shown", "sample_id", rows=query("instruction_rubrics/shown_rows"))
    assert [sum(column) for column in zip(*counted, strict=True)] == [16, len(rows_of(version, "labels"))]
    said = {row["sample_id"]: row["items"] for row in rows_of(version, "samples")}
    assert {row["sample_id"]: len(row["items_shown"].split("\n")) for row in shown} == said
