"""A ninth corpus of ours needs its places and nothing else: shared files are generated, shared tests hold it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from earmark import plugins
from tests.conftest import ROOT
from tests.pipeline.test_plugin import NOTES, PACKAGE

PLACES = {
    "corpus.py": "schemas/tempos.py",
    "flow.py": "flows/tempos.py",
    "steps.py": "tasks/tempos/steps.py",
    "notes.sql": "tasks/tempos/notes.sql",
    "tempos.sql": "tasks/tempos/tempos.sql",
    "pace.md": "prompts/tempos/pace.md",
}
CONFIG = """corpus = "tempos"
notes = "{}tempos.csv"
[judge]
model = "{}"
"""
BUILTIN = '''"""Answer without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from earmark.schemas.registry import register


@register("pace-1")
def pace(facts: Mapping[str, Any], clips: list[Any]) -> dict[str, str]:
    """Call every piece fast."""
    return {"pace": "fast"}
'''
GUIDE = """# tempos

Notes on how fast pieces are.

```toml
corpus = "tempos"
notes = "tempos.csv"

[judge]
model = "openai:m"
```

## Tables

<!-- tables -->
<!-- end -->
"""
SHARED = (
    "tests/test_registries.py", "tests/test_layout.py", "tests/test_docs.py", "tests/test_citation.py", "tests/schemas",
    "tests/data",
    "tests/deploy/test_presets.py", "tests/deploy/test_deploy_files.py", "tests/deploy/test_scale_plan.py",
)  # fmt: skip

EACH = (
    *("tests/pipeline/test_build_keys.py", "tests/pipeline/test_preflight.py", "tests/pipeline/test_hub_inputs.py"),
    *("tests/store/test_hub_card.py", "tests/flows/test_cli.py", "tests/evaluation/test_evaluation.py"),
    *("tests/evaluation/test_score_files.py", "tests/exports/test_rows.py"),
)


def at_home(text: str) -> str:
    """The text of a package's module, as it stands in the rooms: it imports where names are declared."""

    def imports(found: re.Match[str]) -> str:
        names = re.findall(r"\w+", found[1])
        return "".join(f"from {plugins._MODULES[name]} import {name}\n" for name in names)

    text = re.sub(r"from earmark\.plugins import (\([^)]*\)|.*)\n", imports, text)
    text = text.replace('parse_prompt(Path(__file__).with_name("pace.md"))', '"pace"').replace(
        "earmark_tempos/", "tempos/"
    )
    text = (
        text.replace("note_id", "note").replace("missing_text", "missing_value").replace('"too_fast"', '"not_selected"')
    )
    text = re.sub(r"add_reasons\(.*\n", "", text)
    for old, new in (("corpus", "schemas.tempos"), ("steps", "tasks.tempos.steps"), ("flow", "flows.tempos")):
        text = text.replace(f"earmark_tempos.{old}", f"earmark.{new}")
    return text


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_ninth_corpus_needs_its_places_alone(tmp_path: Path) -> None:
    house = tmp_path / "house"
    ours = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in ours:
        (house / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, house / path, follow_symlinks=False)

    def put(path: str, text: str) -> None:
        (house / path).parent.mkdir(parents=True, exist_ok=True)
        (house / path).write_text(text, "utf-8")

    for name, path in PLACES.items():
        put(path, at_home((PACKAGE / name).read_text("utf-8")))
    declared = (house / PLACES["corpus.py"]).read_text("utf-8")
    scale = 'paper="ATTM",\n    scale=(Workload("1,000 notes", 1_000, requests=1),),\n'
    declared = declared.replace('paper="none",\n', scale).replace("import Corpus\n", "import Corpus, Workload\n")
    put("schemas/tempos.py", declared)
    put("tasks/tempos/__init__.py", '"""The steps of `tempos`."""\n')
    put("tasks/tempos/builtin.py", BUILTIN)
    put("tests/tempos/test_tempos.py", '"""The tests of `tempos`."""\n')
    put("flows/tempos.md", GUIDE)
    put("data/demo/tempos.csv", NOTES)
    put("data/demo/tempos.toml", CONFIG.format("", "builtin:pace-1"))
    put("deploy/configs/tempos.toml", CONFIG.format("../../corpora/", "openai:m"))

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{house}/deploy/import", str(house)])}
        ended = subprocess.run(
            [sys.executable, *words], cwd=house, env=environment, capture_output=True, text=True, timeout=900
        )
        assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr
        return ended.stdout

    lock = "from pathlib import Path; from earmark.tasks.annotation.prompts import lock_prompts as lock; "
    assert "pace@1" in run("-c", f"{lock} print(lock(Path('prompts')))")
    run("-c", "from earmark.flows.command.guides import main; main()")
    run("deploy/scale.py", "--write")
    run("-m", "tests.schemas.test_tables")
    for path in ("README.md", "deploy/SCALE.md", "deploy/prefect.yaml", "data/demo/rebuild.toml"):
        assert "tempos" in (house / path).read_text("utf-8"), path
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(*tests, *SHARED, "--deselect", "tests/test_layout.py::test_few_arrows")  # a room more has arrows of its own
    run(*tests, *EACH, "-k", "tempos")
