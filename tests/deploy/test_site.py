"""The documentation's site in a real Chromium, read by axe-core."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import axe_core, chromium
from tests.conftest import ROOT

# The theme's own script labels its menus, and makes code that overflows reachable by keys when it comes into view.
OF_THE_THEME = ("landmark-unique: ['nav", "scrollable-region-focusable: ['#__code")


@pytest.mark.slow
def test_axe_finds_nothing_on_the_site_in_light_or_dark(tmp_path: Path) -> None:
    mkdocs = shutil.which("mkdocs", path=Path(sys.executable).parent)
    if mkdocs is None:
        pytest.skip("no mkdocs; `make docs` installs it")
    axe = axe_core(tmp_path)
    command = [mkdocs, "build", "--quiet", "--strict", "-f", "deploy/docs/mkdocs.yml", "-d", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr
    for scheme in ("light", "dark"):
        with chromium(tmp_path / scheme) as tab:  # the theme remembers its scheme
            tab.show(1200, 900, scheme)
            for page in (
                "index",
                "flows/tutorials/captions",
                "flows/command/build",
                "reference/commands",
                "reference/python",
                "gallery",
            ):
                tab.open(tmp_path / f"site/{page}.html")
                found = [one for one in tab.access_faults(axe) if not one.startswith(OF_THE_THEME)]
                assert found == [], (scheme, page)
