"""The quick-start notebook, run cell by cell as Jupyter would, without Jupyter.

    .venv/bin/python -m tests.flows.notebook

runs the cells of `data/demo/quickstart.ipynb` and writes them back with what they print; a test runs them again.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

NOTEBOOK = ROOT / "data/demo/quickstart.ipynb"


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
    main()
