"""Print the sizes that the house is held to:

python -m tests.house
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from earmark.flows.command.cli import app
from earmark.flows.command.guides import options_table
from earmark.schemas.annotation import Asked, ModelDeclaration
from earmark.schemas.reasons import REASONS
from earmark.schemas.toml import Model
from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.row_types import Known, untyped_subscripts
from tests.test_layout import ROOT, arrows, room_of

OPENINGS = re.compile(r"(What|Whether|How|Of|Where|Which|Who|When|Why)\b")
RELATIVE = re.compile(r"\b(what|that|which|those|one)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
ROW = re.compile(
    r"^\| `(?:[^`\n]*\.)?([^`.\n]+)`(.*)", re.MULTILINE
)  # of a table of options: a key's last word, the rest
TEST = re.compile(r"test_.*\.py")


def sources() -> dict[Path, str]:
    """Return the text of each Python file that git knows, by its path in the repository."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (Path(line) for line in listed.stdout.splitlines())
    return {path: (ROOT / path).read_text("utf-8") for path in paths if (ROOT / path).is_file()}


def documented(tree: ast.Module) -> Iterator[str]:
    """Give the docstrings of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def string_subscripts(tree: ast.Module) -> int:
    """Count subscripts by a literal string."""
    return sum(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        for node in ast.walk(tree)
    )


def main() -> None:
    """Print one line a figure."""
    files = sources()
    product = {path: text for path, text in files.items() if path.parts[0] != "tests"}
    tests = {path: text for path, text in files.items() if path.parts[0] == "tests"}
    lines: Counter[str] = Counter()
    for path, text in product.items():
        lines[room_of(".".join(path.with_suffix("").parts))] += text.count("\n")
    trees = {path: ast.parse(text) for path, text in product.items()}
    known = Known(trees.values())
    words = [text for tree in trees.values() for text in documented(tree)]
    count = sum(len(WORD.findall(text)) for text in words)
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, number in classes.items() if number > 1)
    asserting = sum(text.count("\n") for path, text in tests.items() if TEST.fullmatch(path.name))
    models: dict[str, type[Model]] = {
        name: find_corpus(name).config for name, one in corpora().items() if one.package is None
    }
    tables = {name: ROW.findall(options_table(model)) for name, model in models.items()}
    keys = {name: len(table) for name, table in tables.items()}
    declared = ROW.findall(options_table(ModelDeclaration))
    rows = {
        "lines of Python outside tests": sum(lines.values()),
        **{f"  {room}": number for room, number in lines.most_common()},
        "lines of tests": (all_tests := sum(text.count("\n") for text in tests.values())),
        "  helpers, % of them": round(100 * (1 - asserting / all_tests), 1),
        "option keys of all corpora and of a model": sum(keys.values()) + len(declared),
        "  distinct: each declaration once": len({*chain(*tables.values(), declared)}),
        **{f"  keys of {name}": number for name, number in keys.items()},
        "  keys of a model's declaration": len(declared),
        "  keys of a model's role": len(ROW.findall(options_table(Asked))),
        "reasons of rejects": len(REASONS),
        "commands at the top": len(app.registered_commands) + len(app.registered_groups),
        "arrows between rooms": len(arrows()),
        "subscripts by a string, in 1,000 lines": round(
            1000 * sum(map(string_subscripts, trees.values())) / sum(lines.values()), 1
        ),
        "  on rows without a type": round(
            1000 * sum(len(list(untyped_subscripts(tree, known))) for tree in trees.values()) / sum(lines.values()), 1
        ),
        "docstrings": len(words),
        "  that begin with What, Whether, How …, %": round(
            100 * sum(map(bool, map(OPENINGS.match, words))) / len(words), 1
        ),
        "  relative words in 100": round(100 * sum(len(RELATIVE.findall(text)) for text in words) / count, 2),
        "class names borne more than once": len(twice),
    }
    width = max(map(len, rows))
    for name, figure in rows.items():
        print(f"{name:{width}}  {figure:>8,}")
    print(f"borne more than once: {', '.join(twice)}")


if __name__ == "__main__":
    main()
