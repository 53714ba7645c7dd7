"""Nobody of a dump is in what `score-questions` publishes: no name, id, mention, link or address."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from earmark.schemas.score_questions import TABLES, ScoreQuestions
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.store.explain import explain
from earmark.tasks.store.versions import Version
from earmark.tasks.text.anonymity import key_of
from tests.conftest import ROOT
from tests.pages import told
from tests.score_questions.drawings import score
from tests.score_questions.forum.threads_of import comment, forum_config, submission, write_dump
from tests.score_questions.questions import BUILTIN, build_dump, rows_of

pytestmark = pytest.mark.slow

DEMO = ROOT / "data/demo/score-questions.toml"
SALT = "a salt that only this test knows, for ids that stay"
NOBODY = {"[deleted]", "automoderator", ""}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Version]:
    """The demo's dump as a version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        config = parse_config(ScoreQuestions, read_toml(DEMO), DEMO)
        yield build_dump(config, tmp_path_factory.mktemp("store"))


def dumped(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a dump's file that are JSON."""
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
        for line in io.BytesIO(stream.read()):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row


def originals() -> set[str]:
    """Every name, id, mention, link and address of the demo's dump, in lower case."""
    found: set[str] = set()
    for path in sorted((ROOT / "data/demo/forum").glob("R[SC]_*")):
        for row in dumped(path):
            text = "\n".join(str(row.get(name) or "") for name in ("title", "selftext", "body"))
            found |= {str(row[name]) for name in ("author", "id", "url", "permalink", "link_id") if row.get(name)}
            found |= set(re.findall(r"\bu/([\w-]{3,})", text))
            found |= set(re.findall(r"[\w.+-]+@[\w-]+\.[\w.]+", text))
            found |= set(re.findall(r"https?://[^\s)\]]+", text))
    return {text.lower() for text in found} - NOBODY


def test_the_dump_has_what_is_looked_for() -> None:
    found = originals()
    assert len(found) > 200
    assert [text for text in found if text.startswith("http")]


def test_nobody_is_in_what_is_published(version: Version) -> None:
    looked = re.compile("|".join(rf"(?<!\w){re.escape(text)}(?!\w)" for text in sorted(originals())))
    for table in TABLES:
        if table.name not in version.manifest.rows:
            continue
        for row in rows_of(version, table.name):
            row.pop("image", None)
            said = json.dumps(row, ensure_ascii=False).lower()
            assert looked.findall(said) == [], f"{table.name}: {said[:200]}"
    for name in ("manifest.json", "README.md", "report.html"):
        page = (version.folder / name).read_text("utf-8")
        shown = told(page) if name == "report.html" else page
        text = re.sub(r"data:[\w/]+;base64,[\w+/=]+", "", shown).lower()
        assert looked.findall(text) == [], name
    assert SALT not in (version.folder / "manifest.json").read_text("utf-8")


def test_images_have_no_metadata_and_no_name(version: Version) -> None:
    from PIL import Image

    for row in rows_of(version, "questions"):
        assert re.fullmatch(r"[0-9a-f]{64}\.(png|jpg)", row["image"]["path"])
        with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
            assert not image.getexif()
            assert not {
                key for key in image.info if key not in ("jfif", "jfif_version", "jfif_unit", "jfif_density", "dpi")
            }


def test_another_salt_gives_other_ids_and_another_build_key(
    version: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", "another salt of enough characters")
    config = parse_config(ScoreQuestions, read_toml(DEMO), DEMO)
    other = build_dump(config, tmp_path / "store")
    ids = [{row["question_id"] for row in rows_of(held, "questions")} for held in (version, other)]
    assert len(ids[0]) == len(ids[1])
    assert not ids[0] & ids[1]
    assert version.manifest.build_key != other.manifest.build_key


def test_a_reject_names_no_line(version: Version) -> None:
    rejects = rows_of(version, "rejects")
    assert {(row["file"], row["line"]) for row in rejects} == {("demo-forum", None), (None, None)}
    names = ("table", "item", "stage", "reason", "detail")
    assert rejects == sorted(rejects, key=lambda row: [row[name] for name in names])  # which is not the dump's order


def test_the_owner_finds_the_very_line(version: Version) -> None:
    """The salted id of what stands on the line that is told is the reject's own."""
    checked = 0
    for row in rows_of(version, "rejects"):
        if row["stage"] not in ("submissions", "threads", "scores") or not row["item"]:
            continue
        (told,) = (a.row for a in explain(version, TABLES, row["item"]) if a.row["stage"] == row["stage"])
        path = ROOT / "data/demo/forum" / told["file"].rpartition("/")[2]
        content = path.read_bytes()
        lines = (zstandard.decompress(content) if path.suffix == ".zst" else content).split(b"\n")
        assert key_of(SALT, "thread", json.loads(lines[told["line"] - 1])["id"]) == row["item"]
        checked += 1
    assert checked >= 20


def test_the_card_says_where_lines_are(version: Version) -> None:
    card = (version.folder / "README.md").read_text("utf-8")
    assert "kept outside the dataset" in card
    assert "with its file and line" not in card
    (places,) = (version.folder.parent / "places").iterdir()
    assert places.stat().st_mode & 0o077 == 0


def test_a_persons_own_page_is_no_forum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    (tmp_path / "images").mkdir()
    for number in range(2):
        score(number, staves=1, space=8, width=320).save(tmp_path / f"images/s{number:04d}.png")
    forums = ("u_Some_One", "MusicTheory")
    write_dump(tmp_path / "RS.ndjson", [submission(n, subreddit=name) for n, name in enumerate(forums)])
    write_dump(tmp_path / "RC.ndjson", [comment(100 * n + place, n) for n in range(2) for place in range(3)])
    source = {"submissions": ["RS.ndjson"], "comments": ["RC.ndjson"]}
    values = {"source": source, "images": "images", **BUILTIN}
    found = build_dump(forum_config(tmp_path, **values), tmp_path / "store")
    assert sorted(row["forum"] for row in rows_of(found, "sources")) == ["[user]", "musictheory"]
    assert "some_one" not in told((found.folder / "report.html").read_text("utf-8")).lower()
