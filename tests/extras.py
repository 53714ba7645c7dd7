"""Whether each extra installs: resolved by uv and by plain pip, nothing of it installed.

    make extras                        # writes the table of deploy/INSTALL.md; fails where what should resolve does not
    make extras ARGS=--check           # only fails

uv resolves as `make setup-all` does, pip as the lines of that page; both without the links to wheels that this machine
may have, so that torch is the one that most people get.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from earmark.schemas.errors import NO_RESOLVER

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TABLE = ROOT / "deploy/INSTALL.md"
BEGIN, END = "<!-- make extras -->\n", "<!-- end of make extras -->\n"
WITH_SEPARATOR = {"separation", "audio"}
SUMS = (("models", "scale", "ray"), tuple(PROJECT["optional-dependencies"]))
"""What people install together: a cluster with models, all there is."""
PIP = ((), ("models",), ("scale",), ("models", "scale", "ray"))
"""What plain pip resolves: together, each extra but those with the separator. It takes many times as long as uv."""
SECONDS = 600


@dataclass(frozen=True)
class Resolved:
    """One attempt; `size` is what is downloaded, in bytes, where the installer says it."""

    extras: tuple[str, ...]
    installer: str
    packages: int
    size: int | None
    seconds: float
    why_not: str = ""

    def row(self) -> str:
        """Return the row of the table."""
        named = " + ".join(f"`{name}`" for name in self.extras) or "(core)"
        if set(self.extras) == set(PROJECT["optional-dependencies"]):
            named = "all of them"
        size = f"{self.size / 1e6:,.0f} MB" if self.size else ""
        found = f"{self.packages} packages" if not self.why_not else f"no: {self.why_not}"
        return f"| {named} | {self.installer} | {found} | {size} | {self.seconds:.0f} |\n"


def by_uv(extras: Sequence[str]) -> Resolved:
    """Resolve with uv, within constraints.txt and by the overrides of `[tool.uv]`."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "pylock.toml"
        words = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "pyproject.toml", "-c", "constraints.txt"]
        chosen = [word for name in extras for word in ("--extra", name)]
        seconds, why_not = _run([*words, *chosen, "-q", "--format", "pylock.toml", "-o", str(lock)])
        if why_not:
            return Resolved(tuple(extras), "uv", 0, None, seconds, why_not)
        packages = tomllib.loads(lock.read_text("utf-8"))["packages"]
    mine = [package for package in packages if package["name"] != PROJECT["name"]]
    return Resolved(tuple(extras), "uv", len(mine), sum(map(_bytes, mine)), seconds)


def by_pip(extras: Sequence[str]) -> Resolved:
    """Resolve with the pip of `.venv-extras`, which holds nothing else, within constraints.txt."""
    pip = [str(ROOT / ".venv-extras/bin/python"), "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        chosen = f".[{','.join(extras)}]" if extras else "."
        seconds, why_not = _run([*pip, "-c", "constraints.txt", "--report", str(report), chosen])
        found = 0 if why_not else report.read_text("utf-8").count('"download_info"') - 1
    return Resolved(tuple(extras), "pip", found, None, seconds, why_not)


def _run(command: list[str]) -> tuple[float, str]:
    """Run an installer; how long it took, and the last line of why it failed."""
    own = os.environ | {"UV_FIND_LINKS": "", "PIP_FIND_LINKS": ""}
    start = time.monotonic()
    try:
        ended = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return SECONDS, f"not resolved in {SECONDS} s"
    seconds = time.monotonic() - start
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    return seconds, "" if ended.returncode == 0 else (lines or [f"exit code {ended.returncode}"])[-1]


def _bytes(package: dict[str, Any]) -> int:
    """Count what one package downloads: the wheel that this machine takes, else the sdist."""
    order = {tag: place for place, tag in enumerate(sys_tags())}
    fits = []
    for wheel in package.get("wheels", ()):
        name = urllib.parse.unquote(wheel["url"].rpartition("/")[2])
        places = [order[tag] for tag in parse_wheel_filename(name)[3] if tag in order]
        fits += [(min(places), wheel["size"])] if places else []
    size: int = min(fits)[1] if fits else package["sdist"]["size"]
    return size


def attempts() -> Iterator[Resolved]:
    """Resolve everything that should resolve."""
    for extras in ((), *((name,) for name in PROJECT["optional-dependencies"]), *SUMS):
        yield by_uv(extras)
    for extras in PIP:
        yield by_pip(extras)


def table(resolved: Sequence[Resolved]) -> str:
    """Return the table, with the extras that plain pip is not asked for."""
    head = "| extra | installer | resolves | download | seconds |\n|---|---|---|---|---|\n"
    named = " and ".join(f"`{name}`" for name in PROJECT["optional-dependencies"] if name in WITH_SEPARATOR)
    return head + "".join(one.row() for one in resolved) + f"| {named} | pip | no: {NO_RESOLVER} | | |\n"


def main() -> int:
    """Resolve all, say it, and write the table unless told only to check."""
    resolved = []
    for one in attempts():
        print(one.row(), end="", flush=True)
        resolved.append(one)
    if "--check" not in sys.argv:
        text = TABLE.read_text("utf-8")
        start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        TABLE.write_text(text[:start] + "\n" + table(resolved) + "\n" + text[end:], "utf-8")
    return 1 if any(one.why_not for one in resolved) else 0


if __name__ == "__main__":
    sys.exit(main())
