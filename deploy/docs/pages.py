"""Gather the pages of the documentation's site from their places, and write its reference from declarations.

A hook of MkDocs, run by `make docs`.
"""

import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from earmark.flows.command.cli import app
from earmark.flows.command.guides import guide, reference
from earmark.tasks.pipeline.registry import corpora, find_corpus

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
SHOWN = {".toml", ".yaml", ".csv", ".jsonl", ".json", ".env", ".py", ".png", ".svg", ".ipynb", ".txt", ".cff"}
MOST_BYTES = 1 << 20  # of a file that a page links to
PYTHON = "# Python\n\n::: earmark.flows.python\n\n::: earmark.plugins\n"


def on_config(config: Any) -> Any:
    """Put the corpora's guides and references into the navigation."""
    lists = {title: inner for entry in config.nav for title, inner in entry.items()}
    own = [find_corpus(name) for name, one in corpora().items() if one.package is None]
    lists["Corpora"][:0] = [{_heading(guide(one)).partition(":")[0]: _pages(guide(one))} for one in own]
    lists["Reference"][:0] = [{one.name: reference(one)} for one in own]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository, the files that they link to, and the reference."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    named = set(re.findall(r"[\w./-]+\.md", str(config.nav)))
    pages = [path for path in listed if path in named]
    linked = {target for page in pages for target in _linked(page) if target in listed and Path(target).suffix in SHOWN}
    for path in [*pages, *sorted(linked)]:
        if (ROOT / path).stat().st_size <= MOST_BYTES:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for path, text in (
        ("reference/commands.md", commands()),
        ("reference/python.md", PYTHON),
        ("gallery.md", gallery()),
    ):
        files.append(File.generated(config, path, content=text))
    for path in reports():
        files.append(File.generated(config, f"reports/{path.parts[-3]}.html", abs_src_path=str(path)))
        if picture := picture_of(path):
            files.append(File.generated(config, f"reports/{path.parts[-3]}.png", content=picture))
    files.append(File.generated(config, "llms.txt", content=index_for_models(config.nav, files)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn a link to what the site does not hold, such as a folder of code, into its text; find guides first."""
    if page.file.src_uri.startswith(("CHANGELOG", "reference/", "flows/reference/", "data/")):
        page.meta["search"] = {"boost": 0.2}
    here = posixpath.dirname(page.file.src_uri)
    report = f"reports/{Path(page.file.src_uri).stem.replace('_', '-')}"
    if here in ("flows", "flows/tutorials") and files.get_file_from_path(f"{report}.png"):
        to = posixpath.relpath(report, here)
        shown = f"[![The report of the demo: counts, and the way from input to rows]({to}.png)]({to}.html)"
        markdown = markdown.replace(
            "\n## ", f"\n{shown}\n\nThe report of the whole demo; each build writes one.\n\n## ", 1
        )

    def kept(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target or files.get_file_from_path(posixpath.normpath(posixpath.join(here, target))):
            return match[0]
        return match["text"][1:-1]

    return LINK.sub(kept, markdown)


def commands() -> str:
    """Document every command and option as the command's help has them."""
    from typer.main import get_command

    return "# Commands\n\n" + "\n".join(_command("earmark", get_command(app)))


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{(command.help or '').strip()}\n"
    options = [one for one in command.params if getattr(one, "help", None) and not getattr(one, "hidden", False)]
    if options:
        yield "| option | use |\n|---|---|"
        for one in options:
            names = ", ".join(f"`{word}`" for word in one.opts) if one.param_type_name == "option" else f"`{one.name}`"
            yield f"| {names} | {one.help.replace('|', chr(92) + '|')} |"
        yield ""
    for word, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _command(f"{name} {word}", inner)


def reports() -> list[Path]:
    """Return the demo's reports, the newest of each corpus; they hold all that they show."""
    found = sorted((ROOT / "data/store").glob("*/v*/report.html"), key=lambda path: int(path.parent.name[1:]))
    return list({path.parts[-3]: path for path in found}.values())


def picture_of(report: Path) -> bytes | None:
    """Return a picture of a report's beginning as Chromium shows it; None without a Chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        return None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,900"]
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "report.png"
        command = [browser, *flags, f"--user-data-dir={folder}", f"--screenshot={picture}", report.as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            return picture.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:  # a browser confined to its own folders, for one
            print(f"no picture of {report}: {error}", file=sys.stderr)
            return None


def gallery() -> str:
    """Link to the demo's reports."""
    links = [f"- [{path.parts[-3]}](reports/{path.parts[-3]}.html)" for path in sorted(reports())]
    none = "Build the demo first (`make demo`), then the site: its reports come here."
    return "# Reports to look at\n\nEach build writes one page, which needs no server.\n\n" + ("\n".join(links) or none)


def index_for_models(nav: list[Any], files: Files) -> str:
    """Return `llms.txt`: the site's pages by their headings, for language models."""
    lines = ["# Earmark", "", "> Versioned Parquet datasets for audio and music reward models.", ""]

    def add(entries: list[Any], indent: str) -> None:
        for entry in entries:
            ((title, value),) = entry.items()
            if isinstance(value, str):
                page = files.get_file_from_path(value)
                lines.append(f"{indent}- [{title}]({page.url if page else value})")
            elif entry in nav:
                lines.extend(["", f"## {title}", ""])
                add(value, indent)
            else:
                lines.append(f"{indent}- {title}")
                add(value, indent + "  ")

    add(nav, "")
    return "\n".join(lines) + "\n"


def _pages(page: str) -> str | list[dict[str, str]]:
    topics = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / page).parent.glob(f"topics/{Path(page).stem}/*.md"))
    ]
    return [{"Guide": page}, *({_heading(one): one} for one in topics)] if topics else page


def _heading(page: str) -> str:
    return (ROOT / page).read_text("utf-8").split("\n", 1)[0].lstrip("# ").replace("`", "")


def _linked(page: str) -> Iterator[str]:
    for _, target, _ in LINK.findall((ROOT / page).read_text("utf-8")):
        if "://" not in target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
