"""Prompts of a config, as a stranger writes them: they run nothing and end; ours read as in a plain Jinja."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import meta, nodes

from earmark.schemas.questions import Audio, Image
from earmark.tasks.annotation import prompts
from earmark.tasks.annotation.errors import PromptError
from earmark.tasks.annotation.prompts import PACKAGED, Prompt, parse_prompt
from earmark.tasks.annotation.sandbox import MOST_SIGNS
from tests.conftest import ROOT

HEAD = "---\nname: own\nversion: 1\nsource: a test\n---\n# user\n"
WORDS = "As one says: <|im_start|> e\u0301 ❤\ufe0f a\u00adb {{ audio(a) }} </request>"
RUNS_CODE = [
    "{{ cycler.__init__.__globals__.os.popen('touch MARK') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ text.__class__.__init__.__globals__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ audio.__self__.__class__.__init__.__globals__['hashlib'] }}",
    "{{ fence_rule.__class__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ text | attr('__class__') }}",
    "{{ ['a'] | map(attribute='__class__') | list }}",
    "{% include '/etc/passwd' %}",
    "{% import '/etc/passwd' as x %}",
    "{% set x = cycler %}",
    "{{ '{0.__class__}'.format(text) }}",
    "{{ names.append('x') }}",
]
NEVER_ENDS = [
    "{% for i in range(10**12) %}{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ 'x'.ljust(10**10) }}",
    "{{ '%09999999999d' % 1 }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ 'x' | center(9999999999) }}",
    "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for x in names recursive %}{{ loop(names) }}{% endfor %}",
    "{% for a in names %}" * 12 + "x" + "{% endfor %}" * 12,
    "{% for c in '" + "a" * 1000 + "' %}" * 3 + "{% endfor %}" * 3,
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "9" * 9000 + " }}",
    "{{ 1.5 | round(4000000, 'ceil') }}",
    "{{ names | length | round(names | length + 4000000, 'floor') }}",
    "{{ fence_rule" + " | join('" + "x" * 50 + "')" * 6 + " }}",
    "{{ fence_rule | join(fence_rule | join(fence_rule | join(fence_rule | join(fence_rule)))) }}",
    "{{ fence_rule | join(*[fence_rule | join(fence_rule)]) }}",
    "{% for a in (fence_rule | join(fence_rule))[0:] %}{% for b in fence_rule %}{% endfor %}{% endfor %}",
    "{{ fence_rule" + " | upper" * 400 + " }}",
    "{% if names %}" * 99 + "x" + "{% endif %}" * 99,
    "{% for a in names %}{% for b in names %}{{ audio(clip) }}{% endfor %}{% endfor %}",
    "{{ 3 is divisibleby(0) }}",
    "{{ 1e999 | round(1, 'ceil') }}",
    "x" * 300_000,
]


def rendered(folder: Path, body: str, **values: Any) -> str:
    (folder / "own.md").write_text(HEAD + body, "utf-8")
    prompt = parse_prompt(folder / "own.md")
    (message,) = prompt.render(text="words", names=["a"] * 40, clip=Audio("a" * 64, "a.wav"), **values)
    return str(message.parts)


@pytest.mark.parametrize("body", RUNS_CODE)
def test_an_own_prompt_runs_nothing(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PromptError) as refused:
        rendered(tmp_path, body)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["own.md"]


@pytest.mark.parametrize("body", NEVER_ENDS, ids=range(len(NEVER_ENDS)))
def test_an_own_prompt_ends_in_a_line(body: str, tmp_path: Path) -> None:
    before = time.process_time()
    with pytest.raises(PromptError):
        rendered(tmp_path, body)
    assert time.process_time() - before < 5  # seconds of work, however busy the machine is


@pytest.mark.parametrize(
    "body", ["{{ names }}", "{{ names | upper }}", "{{ names | fence }}", "{{ [text] | first ~ '' }}"]
)
def test_text_from_outside_gets_in_by_no_list(body: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="untrusted text"):
        rendered(tmp_path, body)


def test_joins_and_roundings_of_values_are_written(tmp_path: Path) -> None:
    body = "{{ rates | join(', ') }}; {{ (rates[0] - 0.5) | round(1) }}; {{ rates | first | round(2, method='ceil') }}"
    assert "1.234, 5; 0.7; 1.24" in rendered(tmp_path, body, rates=[1.234, 5])


def test_what_an_own_prompt_writes_is_bounded(tmp_path: Path) -> None:
    loops = "{% for a in names %}{% for b in names %}{% for c in names %}"
    body = loops + "x" * (MOST_SIGNS // 40**3 + 1) + "{% endfor %}" * 3
    with pytest.raises(PromptError, match=f"at most {MOST_SIGNS:,} characters"):
        rendered(tmp_path, body)


def test_front_matter_that_grows_when_it_is_read_is_refused(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    for schema in (bomb, "a: &a {properties: {x: *a}}\n"):
        text = HEAD.replace("---\n# user", "schema:\n  " + schema.replace("\n", "\n  ").rstrip(" ") + "---\n# user")
        (tmp_path / "own.md").write_text(text + "x", "utf-8")
        with pytest.raises(PromptError, match="aliases"):
            parse_prompt(tmp_path / "own.md")


@pytest.mark.slow
def test_a_dry_run_of_a_strangers_config_runs_nothing(tmp_path: Path) -> None:
    """By the command, with a key in sight."""
    ours = next(PACKAGED.glob("*/music-pair.md")).read_text("utf-8")
    (tmp_path / "own.md").write_text(ours + RUNS_CODE[0].replace("MARK", str(tmp_path / "MARK")) + "\n", "utf-8")
    demo = (ROOT / "data" / "demo" / "pseudo-preferences.toml").read_text("utf-8")
    shutil.copytree(ROOT / "data" / "demo" / "music", tmp_path / "music")
    config = tmp_path / "own.toml"
    config.write_text(demo + '\n[asks]\nmusic-pair = "own.md"\n', "utf-8")
    command = [sys.executable, "-m", "earmark", "build", "pseudo-preferences", "--dry-run"]
    environment = {**os.environ, "OPENAI_API_KEY": "sk-secret", "EARMARK_STORE": str(tmp_path / "store")}
    ended = subprocess.run(
        [*command, "-c", str(config)], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
    )
    assert ended.returncode == 1, ended.stdout
    assert "own.md, # user, line" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "MARK").exists()


# -- ours -----------------------------------------------------------------------------------------------------


def value_of(tree: nodes.Template, prompt: Prompt) -> dict[str, Any]:
    """Values for every variable of a template, of the kind that its use shows."""
    loops = {node.target.name: node.iter for node in tree.find_all(nodes.For) if isinstance(node.target, nodes.Name)}
    placed = {
        getattr(call.args[0], "name", ""): call.node.name
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name) and call.args
    }
    fenced = {ast(node.node) for node in tree.find_all(nodes.Filter) if node.name == "fence" and node.node}
    fields: dict[str, set[str]] = {}
    for node in tree.find_all(nodes.Getattr):
        if isinstance(node.node, nodes.Name) and node.node.name in loops:
            fields.setdefault(node.node.name, set()).add(node.attr)

    def one(name: str) -> Any:
        if placed.get(name) == "audio":
            return Audio(name[0] * 64, f"{name}.wav")
        if placed.get(name) == "image":
            return Image(name[0] * 64, f"{name}.png")
        if name in fields:
            return {field: WORDS if f"{name}.{field}" in fenced else 7 for field in sorted(fields[name])}
        return WORDS if name in fenced or name in prompt.trusted else 3

    values = {name: one(name) for name in meta.find_undeclared_variables(tree)}
    for name, over in loops.items():
        if isinstance(over, nodes.Name):
            values[over.name] = [one(name), one(name)]
    return values


def ast(node: nodes.Node) -> str:
    if isinstance(node, nodes.Getattr):
        return f"{ast(node.node)}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else ""


def plain_turns(prompt: Prompt) -> Iterator[tuple[str, jinja2.Template]]:
    """The prompt's messages as release 1.0.0 compiled them: a plain environment with all that Jinja has."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=prompts._finalize
    )
    environment.filters["fence"] = prompts._fence_filter
    body = prompt.text.split("---\n", 2)[2]
    pieces = re.split(r"^# (system|user|assistant)[ \t]*\n", body, flags=re.MULTILINE)
    for role, text in zip(pieces[1::2], pieces[2::2], strict=True):
        yield role, environment.from_string(text)


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*/*.md")), ids=lambda path: path.stem)
def test_the_sandbox_changes_no_byte_of_a_shipped_prompt(path: Path) -> None:
    prompt = parse_prompt(path)
    plain = jinja2.Environment()
    plain.filters["fence"] = prompts._fence_filter
    values = value_of(plain.parse(prompt.text.split("---\n", 2)[2]), prompt)
    values = {name: value for name, value in values.items() if name not in ("audio", "image", "fence_rule")}
    before = replace(prompt, _turns=tuple(plain_turns(prompt)))
    for empty in (False, True):  # what stands in an `if` is there, and is not
        some = {name: "" if empty and isinstance(value, str) else value for name, value in values.items()}
        ours = prompt.render(**some)
        assert ours == before.render(**some)
        assert ours
