"""An audit of rows that a stranger wrote, in a real Chromium: their text stays text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.store.versions import Version
from tests.browser import chromium
from tests.builds import restate
from tests.people.test_audits import content_of

HOSTILE = "</script></h2><script>window.bad = 1</script><img src=x onerror='window.bad = 2'> {{ 7 * 7 }} \u202e$&"


def spoil(folder: Path, columns: tuple[str, ...]) -> None:
    """Add hostile text to columns of texts, or of lists of them."""
    (path,) = folder.glob("*.parquet")
    table = pq.read_table(path)
    for name in columns:
        column = table[name].to_pylist()
        spoiled = [[one + HOSTILE for one in value] if isinstance(value, list) else value + HOSTILE for value in column]
        table = table.set_column(table.column_names.index(name), name, pa.array(spoiled, table[name].type))
    path.unlink()  # it is a hard link
    pq.write_table(table, path)
    restate(Version(folder.parent.parent.name, folder.parent))
    assert pc.all(pc.match_substring(table[columns[0]], HOSTILE)).as_py()


@pytest.mark.slow
def test_text_of_rows_stays_text_on_an_audits_page(built_demo: Path, tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "audit"
    shutil.copytree(built_demo, store, symlinks=True)
    spoil(store / "score-questions/v1/questions", ("question", "options"))
    words = ["people", "audit", "sample", "score-questions", "--evaluation", "questions", "--split", "all"]
    drawn = CliRunner().invoke(app, [*words, "--store", str(store), "--out", str(folder)])
    assert drawn.exit_code == 0, drawn.output
    page = next((folder / "pages").glob("*.html"))
    trials = content_of(page)["trials"]
    with chromium(tmp_path / "profile") as tab:
        tab.open(page)
        scripts = tab.ask("document.scripts.length")
        tab.until("document.querySelector('#stage input[type=submit]') !== null")
        tab.ask("document.querySelector('#stage input[type=submit]').click()")
        tab.until("document.querySelector('#stage fieldset') !== null")
        shown = tab.ask("document.querySelector('#stage').textContent")
        assert shown.count(HOSTILE) >= 3, "the question and its options"
        assert tab.ask("document.scripts.length") == scripts
        assert tab.ask("window.bad") is None
        assert tab.ask("document.querySelectorAll('#stage img:not([src^=data])').length") == 0
        assert tab.complaints == []
    assert len(trials) == len({one["id"] for one in trials})
