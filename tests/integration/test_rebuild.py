"""`earmark rebuild` for real: in order, going on after a failure, saying what to do, finding all up to date."""

from __future__ import annotations

import json
from pathlib import Path

from tasks.store.versions import Store
from tests.conftest import ROOT
from tests.integration.test_cli import as_json, earmark

DEMO = ROOT / "data/demo"


def demo(name: str, folder: Path, *changes: tuple[str, str]) -> None:
    """The demo's config of a corpus, changed, with its paths as they are from elsewhere."""
    text = (DEMO / f"{name}.toml").read_text("utf-8")
    for old, new in (("tracks/", f"{DEMO}/tracks/"), ("tags/", f"{DEMO}/tags/"), *changes):
        assert old in text or old.endswith("/")
        text = text.replace(old, new)
    (folder / f"{name}.toml").write_text(text, "utf-8")


def test_a_failure_stops_only_what_reads_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    demo("instrumentals", tmp_path, ("tracks.tsv", "gone.tsv"))
    demo("captions", tmp_path, ("seed = 17", 'seed = 17\ninstrumentals = "instrumentals"'))
    demo("music-prompts", tmp_path)
    names = ("captions", "music-prompts", "instrumentals")
    config = tmp_path / "rebuild.toml"
    config.write_text("".join(f'[[builds]]\ncorpus = "{name}"\nconfig = "{name}.toml"\n' for name in names))

    before = {row["corpus"]: row["would"] for row in as_json(store, "rebuild", "-c", config, "--dry-run")}
    assert before == {"instrumentals": "fail", "captions": "wait", "music-prompts": "build"}
    assert not Store(store).versions("music-prompts")

    ended = earmark(store, "rebuild", "-c", config, "--json", code=1)
    rows = {row["corpus"]: row for row in json.loads(ended.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "instrumentals": "failed",
        "captions": "skipped",
        "music-prompts": "built",
    }
    assert rows["captions"]["detail"] == "instrumentals did not come to a version"
    assert "gone.tsv" in rows["instrumentals"]["detail"]
    assert ended.stderr.splitlines()[-1].startswith("error: 2 of 3 corpora need attention: ")

    demo("instrumentals", tmp_path)
    shown = earmark(store, "rebuild", "-c", config).stdout
    assert [Store(store).latest(name) is not None for name in names] == [True] * 3
    captions = Store(store).find("captions@v1").manifest
    assert [(parent.corpus, parent.version) for parent in captions.parents] == [("instrumentals", "v1")]
    assert shown.count("built") == 2

    again = earmark(store, "rebuild", "-c", config)
    assert "Prefect" not in again.stderr, "nothing is out of date, so no flow is started"
    assert again.stdout.count("up to date") == 3
