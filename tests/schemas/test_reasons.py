"""Every reason that the code can give is declared, once, with options that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from earmark.schemas.reasons import CURRENT, FAULTS, MERGED, REASONS, RULES, count_reasons, find_reason, options_of
from earmark.schemas.tables import REJECTS
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT

TAKES_A_REASON = {  # which argument of these calls is a reason
    "BadRow": 0, "BadAudio": 0, "AudioFault": 0, "Fault": 0, "_fault": 0, "Reject": 1, "reject_of": 1, "_reject": 1,
    "refuse": 1,
}  # fmt: skip
WORD = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*")
FATES = ("scan_submissions", "judge_comments")
NAMES = ("reason", "fate", "criterion", "contradiction", "repetition")  # of columns that become reasons
KINDS = {"tasks/annotation/errors.py", *(f"tasks/score_questions/{name}.sql" for name in FATES)}
"""Files with finer words: the ledger's kinds of faults, and fates of a dump's lines."""
NO_REJECTS = {"kept", "malformed", "other_subreddit", "other_year", "other_thread", "not_first_level"}
"""Fates of a dump's lines that are kept, or passed by and counted."""


def words_of(node: ast.expr) -> Iterator[str]:
    """The texts that an expression can be; an f-string as a pattern."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp():
            yield from words_of(node.body)
            yield from words_of(node.orelse)
        case ast.JoinedStr():
            yield "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)  # type: ignore[misc]


def in_python(path: Path) -> Iterator[str]:
    """Reasons that a module gives: to the calls that take one, and as `reason` of a class of errors."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if len(node.args) > (at := TAKES_A_REASON.get(name, 99)):
                yield from words_of(node.args[at])
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
                if isinstance(target, ast.Name) and target.id == "reason" and getattr(line, "value", None):
                    yield from words_of(line.value)  # type: ignore[union-attr]


def in_sql(path: Path) -> Iterator[str]:
    """Reasons that a query gives: what its columns of `NAMES` can be."""
    text = path.read_text("utf-8")
    tokens = list(re.finditer(r"\bCASE\b|\bEND\b(\s+AS\s+(\w+))?|(?:\b(?:THEN|ELSE)\s+)'(\w+)'", text))
    open_cases: list[list[str]] = []
    for token in tokens:
        if token[0] == "CASE":
            open_cases.append([])
        elif token[3]:
            open_cases[-1].append(token[3])
        elif token[0].startswith("END"):
            held = open_cases.pop()
            if token[2] in NAMES:
                yield from held
            elif open_cases and token[2] is None:
                open_cases[-1] += held  # a CASE within a CASE
    yield from re.findall(r"'(\w+)' AS reason\b", text)
    yield from re.findall(r"coalesce\(reason, '(\w+)'\)", text)


def given() -> dict[str, set[str]]:
    """Every reason in the code, with the files that give it."""
    found: dict[str, set[str]] = {}
    for read, ending in ((in_python, "py"), (in_sql, "sql")):
        for path in (ROOT / "tasks").rglob(f"*.{ending}"):
            for word in read(path):
                found.setdefault(word, set()).add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.slow
def test_every_reason_in_the_code_is_declared() -> None:
    found = given()
    assert {"conflicting_split", "repeated_vote", "file_missing", "missing_value", "rate_limited"} <= found.keys()
    undeclared = {word: files for word, files in found.items() if word not in REASONS.keys() | NO_REJECTS}
    kinds = {word for word, files in undeclared.items() if word in CURRENT and files <= KINDS}
    assert undeclared.keys() - kinds == set(), "declare these in schemas/reasons.toml"
    assert {"rate_limited", "missing_title"} <= kinds


def test_the_table_has_texts_alone() -> None:
    table = tomllib.loads((ROOT / "schemas/reasons.toml").read_text("utf-8"))
    assert [*table] == ["faults", "rules", "merged"]
    assert {type(words) for part in table.values() for words in part.values()} == {str}


def test_each_is_declared_once() -> None:
    words = Counter(" ".join([*FAULTS.values(), *RULES.values()]).split())
    assert [word for word, times in words.items() if times > 1 or not WORD.fullmatch(word)] == []
    assert len(words) <= 120


def test_each_word_of_before_has_a_reason_in_its_place() -> None:
    words = Counter(" ".join(MERGED.values()).split())
    assert [word for word, times in words.items() if times > 1 or word in REASONS] == []
    assert MERGED.keys() <= REASONS.keys()
    assert find_reason("missing_title") == find_reason("missing_value") == REASONS["missing_value"]
    assert count_reasons({"bad_id": 2, "bad_value": 1, "tie": 3}) == {"bad_value": 3, "tie": 3}


def test_no_declared_reason_is_dead() -> None:
    """Every declared word stands in the code."""
    paths = [path for room in ("tasks", "schemas") for path in (ROOT / room).rglob("*.*")]
    read = [path.read_text("utf-8") for path in paths if path.suffix in (".py", ".sql") and path.name != "reasons.py"]
    there = {word for text in read for word in re.findall(r"\w+", text)}
    assert [word for word in REASONS if word not in there] == []


def test_every_option_is_one_of_a_corpus() -> None:
    configs = [find_corpus(name).config for name in corpora()]
    for word, reason in REASONS.items():
        for option in reason.options:
            there = [
                key for config in configs for key, _ in options_of(word, config) if f".{key}".endswith(f".{option}")
            ]
            assert there, f"{word}: no config has an option {option}"


def test_options_are_named_as_the_corpus_names_them() -> None:
    mos, captions = find_corpus("mos-preferences").config, find_corpus("captions").config
    assert [key for key, _ in options_of("score_out_of_scale", mos)] == ["sources.scale", "sources.not_a_rating"]
    assert options_of("score_out_of_scale", mos)[0][1].startswith("Lowest and highest possible rating")
    assert [key for key, _ in options_of("audio_too_short", captions)] == ["length_s"]
    assert options_of("score_out_of_scale", captions) == []
    assert options_of("bad_encoding", captions) == []


def test_an_undeclared_reason_is_refused(tmp_path: Path) -> None:
    stage = Stage(Store(tmp_path), "mos-preferences", "0" * 64, tmp_path)
    cells = ("ratings", "x", "import", "made_up", "d", "f", 1)
    row = pa.Table.from_pylist([dict(zip(REJECTS.schema.names, cells, strict=False))], REJECTS.schema)
    with pytest.raises(LookupError, match=r"'made_up' is not declared; a package declares"):
        stage.write_rejects("import", row)
    assert stage.rejects() == []
