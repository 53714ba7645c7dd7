"""Serve the page of `earmark inspect view`: the report's page, its tables over all rows of a version. Each filter and
each page is a query. All of it lies below an address with a token; texts are shown only as text."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.files import NotAFile, read_regular
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.people.page import PLAYABLE
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.report import as_cell, beside_section
from earmark.tasks.store.figures import Document, Page, Section, Sheet
from earmark.tasks.store.files import replacing
from earmark.tasks.store.report import render_report
from earmark.tasks.store.shelf import OPERATIONS, Filter, Shelf
from earmark.tasks.store.versions import Store, Version

AT_ONCE, AT_FIRST = 25, 6  # rows, as in report.js; columns
PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; form-action 'none'; base-uri 'none'",  # beside the page's own
}


def make_view_app(version: Version, corpus: Corpus, store: Store, token: str, spill: Path) -> Starlette:
    """Return the application: a page at `/<token>/`, rows and clips below it. `spill` holds data beyond memory."""
    viewer = _Viewer(Shelf(version, corpus.tables, spill), corpus, store, spill)

    async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(HEADERS)
        return response

    def refused(request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 400)

    return Starlette(
        routes=[
            Route(f"/{token}/", viewer.page),
            Route(f"/{token}/rows", viewer.rows),
            Route(f"/{token}/row", viewer.row),
            Route(f"/{token}/clips/{{sha256}}", viewer.clip),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=guarded),
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]),
        ],
        exception_handlers={EarmarkError: refused},
    )


class _Viewer:
    def __init__(self, shelf: Shelf, corpus: Corpus, store: Store, spill: Path) -> None:
        self._shelf, self._corpus, self._store, self._spill = shelf, corpus, store, spill

    def page(self, request: Request) -> Response:
        version = self._shelf.version
        others = tuple(one.name for one in self._store.versions(version.corpus) if one.name != version.name)
        beside = request.query_params.get("beside")
        if beside is not None and beside not in others:
            raise InputError(f"beside: expected one of {', '.join(others)}, found '{beside}'")
        main = self._corpus.story.main_table
        tables = sorted(self._shelf.tables, key=lambda name: name != main)
        sections = [
            *([self._beside(beside)] if beside else []),
            *(self._table(self._shelf.tables[name]) for name in tables),
            self._evaluations(),
        ]
        page = Page(tuple(sections), says="`report.html` beside the version tells how it was made.", others=others)
        return HTMLResponse(render_report(version.manifest.model_copy(update={"steps": ()}), self._corpus.story, page))

    def _sheet(self, relation: str, title: str, first: Sequence[str]) -> Sheet:
        columns = (*first, *(name for name in self._shelf.columns(relation) if name not in first))
        _, total = self._shelf.page(relation, [], None, True, 0, 0)
        return Sheet(title, columns, (), total, relation=relation, shown=len(first), operations=tuple(OPERATIONS))

    def _table(self, table: Table) -> Section:
        relation = f"rows {table.name}"
        first = first_columns(table, self._shelf.columns(relation))
        return Section(table.name, (self._sheet(relation, f"all {table.name}", first),), table.description)

    def _beside(self, name: str) -> Section:
        """Compare all tables with another version."""
        old = self._store.find(f"{self._corpus.name}@{name}")
        self._store.fetch(old, tables_only=True)
        pairs = [(table, *self._shelf.compare(table.name, old)) for table in self._shelf.tables.values()]
        changes = [change for _, counts, _ in pairs for change in counts]
        section = beside_section(self._shelf.version.manifest, old.manifest, changes)
        sheets = [
            self._sheet(relation, f"{table.name} that differ", self._shelf.columns(relation)[:AT_FIRST])
            for table, counts, relation in pairs
            if any(one.added or one.removed or one.changed for one in counts)
        ]
        return replace(section, figures=(*section.figures, *sheets), says="" if sheets else "No row differs.")

    def _evaluations(self) -> Section:
        version = self._shelf.version
        folder = self._store.root / "evaluations" / version.corpus / version.name
        markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link"])
        documents = tuple(
            Document(page.parent.name, Markup(markdown.render(page.read_text("utf-8"))))  # raw HTML is off
            for page in sorted(folder.glob("*/README.md"))
        )
        none = f"None yet. `earmark eval run {version.corpus}@{version.name}` lists what can be measured."
        return Section("Evaluations", documents, "" if documents else none)

    def rows(self, request: Request) -> Response:
        """Return a page of rows, cells as in a report, and the number of matches."""
        rows, total = self._asked(request, AT_ONCE)
        cells = [{name: as_cell(value) for name, value in row.items()} for row in rows]
        return JSONResponse({"rows": cells, "total": total})

    def _asked(self, request: Request, most: int) -> tuple[list[dict[str, Any]], int]:
        asked = request.query_params
        parts = [asked.getlist(name) for name in ("column", "operation", "value")]
        first = asked.get("first", "")
        if len({len(part) for part in parts}) > 1 or not (first.isascii() and first.isdigit() and len(first) < 16):
            raise InputError("expected first, and column, operation and value of each filter")
        filters = [Filter(*one) for one in zip(*parts, strict=True)]
        rising = asked.get("rising") != "false"
        return self._shelf.page(asked.get("relation", ""), filters, asked.get("order"), rising, int(first), most)

    def row(self, request: Request) -> Response:
        """Return a row's clips and values, of a compared row the differing values in both versions."""
        rows, _ = self._asked(request, 1)
        if not rows:
            raise InputError("no such row")
        relation, row = request.query_params["relation"], rows[0]
        if compared := self._shelf.compared(relation):
            name, old = compared
            was, now = self._shelf.both(name, old, row)
            row = now or was
            values = {
                key: [(old.name, _shown(was.get(key))), (self._shelf.version.name, _shown(now.get(key)))]
                for key in {**was, **now}
                if was.get(key) != now.get(key)
            }
        else:
            name = relation.removeprefix("rows ")
            if name == REJECTS.name:
                row = self._shelf.placed(row)
            values = {key: [("", _shown(value))] for key, value in row.items() if value is not None}
        says = {one.name: (one.metadata or {}).get(b"description", b"").decode()
                for one in self._shelf.tables[name].schema}  # fmt: skip
        facts = [(key, says.get(key, ""), each) for key, each in values.items()]
        return JSONResponse({"clips": self._shelf.clips_of(name, row), "facts": facts})

    def clip(self, request: Request) -> Response:
        found = find_clip(self._shelf, self._store, self._spill, request.path_params["sha256"])
        if found is None:
            return PlainTextResponse("the clip is not at hand", 404)
        known = PLAYABLE | PICTURES
        return FileResponse(found, media_type=known.get(found.suffix.lower(), "application/octet-stream"))


def find_clip(shelf: Shelf, store: Store, spill: Path, sha256: str) -> Path | None:
    """Return a clip's file: from a table embedding it, or a file measured by the store and still unchanged."""
    if held := shelf.embedded(sha256):
        path = spill / f"{sha256}{Path(held[0]).suffix.lower()}"
        with replacing(path) as temporary:
            temporary.write_bytes(held[1])
        return path
    for path in media_index(store).places({sha256}).get(sha256, []):
        try:
            if hashlib.sha256(read_regular(path)).hexdigest() == sha256:
                return path
        except (FileNotFoundError, NotAFile):
            continue  # another file may still be it
    return None


def first_columns(table: Table, there: Sequence[str]) -> list[str]:
    """Choose a row's most informative columns, measures first, then its key; its details show ids, files and lists."""
    ids = {ref.column for ref in table.refs if ref.kind != "source"} | set(table.embedded)
    fields = [
        field
        for field in table.schema
        if field.name in there
        and field.name not in ids
        and not field.name.endswith(("_id", "_sha256", "_key"))
        and not pa.types.is_list(field.type)
    ][:AT_FIRST]
    says = [one.name for one in sorted(fields, key=lambda field: not pa.types.is_floating(field.type))]
    return [*says, *(name for name in table.key if name in there and name not in says)]


def _shown(value: Any) -> str:
    return "–" if value is None else "\n".join(map(str, value)) if isinstance(value, list) else str(value)
