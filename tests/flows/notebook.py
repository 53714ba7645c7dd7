"""What a notebook does, and the quick-start notebook itself, run cell by cell as Jupyter would, without Jupyter.

    .venv/bin/python -m tests.flows.notebook

runs the cells of `data/demo/quickstart.ipynb` and writes them back with what they print. With `cells` it compares what
they print instead, and with `builds FOLDER` it builds there in all ways that Python has.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import earmark
from tests.conftest import ROOT

NOTEBOOK = ROOT / "data/demo/quickstart.ipynb"
SOURCE = {"name": "one", "format": "table", "columns": {"file": "f", "mos": "m", "content": "c"}}
LISTED = {**SOURCE, "files": {"train": "ratings.csv"}}


def rate(folder: Path, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    listed = [f"{n}.wav,{1 + n % 5},c{n // 5}" for n in range(rows)]
    (folder / "ratings.csv").write_text("\n".join(["f,m,c", *listed]))


def build_in_all_ways(folder: Path) -> None:
    """A file, its values and its model build the same, and say nothing unless progress is wanted."""
    rate(folder / "in", 15)
    values = {"sources": [LISTED], "triplets": {"count": 0}}
    toml = '[[sources]]\nname = "one"\nformat = "table"\nfiles = { train = "ratings.csv" }\n'
    toml += 'columns = { file = "f", mos = "m", content = "c" }\n[triplets]\ncount = 0\n'
    (folder / "in/my.toml").write_text(toml)
    store = str(folder / "store")
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        first = earmark.build("mos-preferences", values, base=folder / "in", store=store)
        assert str(first) == "mos-preferences@v1"
        from tests.builds import config_of, contents_of  # imports Prefect, which a first build has to find a server for

        for config in (folder / "in/my.toml", config_of(folder / "in", LISTED, triplets={"count": 0})):
            assert str(earmark.build("mos-preferences", config, store=store)) == "mos-preferences@v1"
        os.chdir(folder / "in")
        assert str(earmark.build("mos-preferences", values, store=store)) == "mos-preferences@v1"
    assert told.getvalue() == "", "quiet unless progress is wanted"

    async def notebook() -> earmark.Opened:
        return earmark.build("mos-preferences", values, store=store, force=True, progress=True)

    with contextlib.redirect_stderr(told):
        forced = asyncio.run(notebook())
    assert contents_of(forced.version.folder) == contents_of(first.version.folder)
    assert "pairs" in told.getvalue()

    exported = forced.export("jsonl", folder / "out", table="pairs")
    assert (folder / "out/export.json").is_file()
    assert exported["rows"]


def compare_cells() -> None:
    """The notebook prints what it shows."""
    cells = json.loads(NOTEBOOK.read_bytes())["cells"]
    with demo_folder():
        assert list(run(cells)) == [
            {**one, "source": "".join(one["source"]).splitlines(keepends=True)} for one in cells
        ]


def run(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The cells as Jupyter keeps them, with what they print and the value of their last line."""
    names: dict[str, Any] = {}
    count = 0
    for number, old in enumerate(cells):
        kind, source = old["cell_type"], "".join(old["source"])
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": source.splitlines(keepends=True),
        }
        if kind == "code":
            count += 1
            printed = io.StringIO()
            body = ast.parse(source).body
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(printed):
                exec(compile(ast.Module(body, []), "cell", "exec"), names)
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
            outputs: list[dict[str, Any]] = []
            if printed.getvalue():
                outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
            if value is not None:
                shown = {"data": {"text/plain": repr(value)}, "metadata": {}, "execution_count": count}
                outputs.append({"output_type": "execute_result", **shown})
            cell |= {"execution_count": count, "outputs": outputs}
        yield cell


@contextlib.contextmanager
def demo_folder() -> Iterator[None]:
    """The demo's inputs as the working folder, in a copy."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(shutil.copytree(ROOT / "data/demo", Path(folder) / "demo"))
        try:
            yield
        finally:
            os.chdir(before)


def main() -> None:
    """Write the notebook with what it prints now."""
    notebook = json.loads(NOTEBOOK.read_bytes())
    with demo_folder():
        notebook["cells"] = list(run(notebook["cells"]))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["builds"]:
        build_in_all_ways(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["cells"]:
        compare_cells()
    else:
        main()
