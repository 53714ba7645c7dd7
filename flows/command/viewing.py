"""The page of `earmark view`, on NiceGUI: each filter and each turned page is a query; texts are only shown as text.

All of it lies below an address that holds a token, also what NiceGUI serves itself and its socket. Columns of a table
go to the browser as numbers, and come back so.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from markdown_it import MarkdownIt
from nicegui import events, ui
from starlette.middleware.trustedhost import TrustedHostMiddleware

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import EarmarkError
from earmark.schemas.files import NotAFile, read_regular
from earmark.schemas.tables import REJECTS
from earmark.tasks.build.media import media_index
from earmark.tasks.build.report import as_cell
from earmark.tasks.people.page import PLAYABLE
from earmark.tasks.store.report import number
from earmark.tasks.store.shelf import OPERATIONS, Filter, Shelf
from earmark.tasks.store.versions import Store, Version

AT_ONCE, AT_FIRST = 25, 6  # rows; columns
PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; form-action 'none'"
HEAD = """<style>
.q-table td { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; } .q-table tbody tr { cursor: pointer; }
.q-table tbody tr.chosen { background: #2467a833; } audio { width: 100%; } .prose table { border-collapse: collapse; }
.prose { overflow-x: auto; } .prose td, .prose th { padding: .2rem .8rem .2rem 0; text-align: left; }
.prose td { white-space: nowrap; }
@media (max-width: 1023px) { .q-table__container { max-height: 60vh; } }
.prose h1 { font-size: 1.3rem; line-height: 1.6; } .prose h2 { font-size: 1.1rem; line-height: 1.6; }
</style><script>
let playing = null; // as in report.js: of two that start together, their events tell which came last
document.addEventListener("play", ({ target }) => {
  if (target.paused) return;
  if (playing !== target) playing?.pause();
  playing = target;
}, true);
document.addEventListener("pause", ({ target }) => { if (playing === target && target.paused) playing = null; }, true);
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const player = [...document.querySelectorAll("audio")].filter((one) => one.checkVisibility())[Number(event.key) - 1];
  if (!player?.paused) return player?.pause();
  playing?.pause();
  player.play().catch((fault) => { if (fault.name !== "AbortError") throw fault; });
});
</script>"""


def make_view_app(version: Version, corpus: Corpus, store: Store, token: str, spill: Path) -> FastAPI:
    """The application: a page at `/<token>/`, and clips below it. `spill` is a folder for what outgrows the memory."""
    shelf = Shelf(version, corpus.tables, spill)
    app = FastAPI(openapi_url=None)

    @app.get(f"/{token}/clips/{{sha256}}")
    def clip(sha256: str) -> Response:
        found = find_clip(shelf, store, spill, sha256)
        if found is None:
            return Response("the clip is not at hand", 404, media_type="text/plain")
        return FileResponse(
            found, media_type=(PLAYABLE | PICTURES).get(found.suffix.lower(), "application/octet-stream")
        )

    @app.middleware("http")
    async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update({"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
                                 "Content-Security-Policy": POLICY})  # fmt: skip
        return response

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    title = f"{version.corpus} {version.name}"
    ui.run_with(app, root=lambda: _Viewer(shelf, corpus, store).draw(), mount_path=f"/{token}", title=title,
                dark=None, show_welcome_message=False, tailwind=True)  # fmt: skip
    return app


def find_clip(shelf: Shelf, store: Store, spill: Path, sha256: str) -> Path | None:
    """A clip's file: from a table that holds it, or one that the store has measured and that still is it."""
    if held := shelf.embedded(sha256):
        path = spill / f"{sha256}{Path(held[0]).suffix.lower()}"
        path.write_bytes(held[1])
        return path
    for path in media_index(store).places({sha256}).get(sha256, []):
        try:
            if hashlib.sha256(read_regular(path)).hexdigest() == sha256:
                return path
        except (FileNotFoundError, NotAFile):
            continue  # another file may still be it
    return None


class _Grid:
    """A table that asks for each of its pages, beside a column for the row that is chosen."""

    def __init__(self, shelf: Shelf, choose: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._shelf, self._choose = shelf, choose
        self._relation, self._filters, self._shown = "", list[Filter](), list[str]()
        self._rows: list[dict[str, Any]] = []
        self._at = 0
        with ui.element("div").classes("grid grid-cols-1 lg:grid-cols-3 gap-6 w-full"):
            self._table = ui.table(rows=[], columns=[], row_key="place", pagination=AT_ONCE)
            self._table.classes("lg:col-span-2 min-w-0").props(f"flat dense :rows-per-page-options=[{AT_ONCE}]")
            self.detail = ui.column().classes("min-w-0 w-full")
        self._table.on("request", self._turn).on("rowClick", self._clicked, [[], ["place"], None])

    async def open(self, relation: str, shown: Sequence[str], filters: Sequence[Filter] = ()) -> None:
        """Show the first page of a relation's rows, by these of its columns.

        Raises:
            InputError: as `Shelf.page`.
        """
        self._relation, self._shown, self._filters = relation, [*shown], [*filters]
        await self._load({"page": 1, "sortBy": None, "descending": False})

    async def _turn(self, event: events.GenericEventArguments) -> None:
        await self._load(event.args["pagination"])

    async def _load(self, page: Mapping[str, Any]) -> None:
        names = self._shelf.columns(self._relation)
        order = None if page["sortBy"] is None else names[int(page["sortBy"])]
        turned, falling = max(1, int(page["page"])), bool(page["descending"])
        asked = (self._relation, self._filters, order, not falling, (turned - 1) * AT_ONCE, AT_ONCE)
        self._rows, total = await asyncio.to_thread(self._shelf.page, *asked)
        self._table.columns = [
            {"name": str(at), "field": str(at), "label": name, "sortable": True, "align": "left"}
            for at, name in enumerate(names)
            if name in self._shown
        ]
        self._table.rows = [
            {"place": place, **{str(at): as_cell(row[name]) for at, name in enumerate(names)}}
            for place, row in enumerate(self._rows)
        ]
        at = {"page": turned, "rowsPerPage": AT_ONCE, "rowsNumber": total}
        self._table.pagination = {**at, "sortBy": page["sortBy"], "descending": falling}
        self._at = 0
        self.detail.clear()
        await self.step(0)

    async def _clicked(self, event: events.GenericEventArguments) -> None:
        self._at = int(event.args[1]["place"])
        await self.step(0)

    async def step(self, by: int) -> None:
        """Choose the row so many further, on another page where it is."""
        at, page = self._at + by, self._table.pagination
        if at in (-1, len(self._rows)) and 0 <= (page["page"] - 1) * AT_ONCE + at < page["rowsNumber"]:
            await self._load({**page, "page": page["page"] + (1 if by > 0 else -1)})
            at = 0 if by > 0 else len(self._rows) - 1
        if 0 <= at < len(self._rows):
            self._at = at
            self._table.props(f""":table-row-class-fn="(row) => row.place === {at} ? 'chosen' : ''" """)
            await self._choose(self._rows[at])


class _Viewer:
    """One browser's page."""

    def __init__(self, shelf: Shelf, corpus: Corpus, store: Store) -> None:
        self._shelf, self._corpus, self._store = shelf, corpus, store
        self._filters: list[Filter] = []

    async def draw(self) -> None:
        version = self._shelf.version
        ui.add_head_html(HEAD)
        with ui.row().classes("w-full items-baseline gap-4"):
            ui.label(f"{version.corpus} {version.name}").classes("text-2xl")
            ui.label("↑ ↓ step through rows; 1, 2, … play and pause clips").classes("opacity-70")
        parts = {"Rows": self._draw_rows, "Compare": self._draw_compare, "Evaluations": self._draw_evaluations}
        with ui.tabs() as self._tabs:
            for name in parts:
                ui.tab(name)
        with ui.tab_panels(self._tabs, value="Rows", animated=False).classes("w-full"):
            for name, draw in parts.items():
                with ui.tab_panel(name).classes("p-0"):
                    await draw()
        ui.keyboard(self._key)

    async def _key(self, event: events.KeyEventArguments) -> None:
        grid = {"Rows": self._grid, "Compare": self._changes}.get(self._tabs.value or "")
        if grid and event.action.keydown and (event.key.arrow_down or event.key.arrow_up):
            await grid.step(1 if event.key.arrow_down else -1)

    async def _draw_rows(self) -> None:
        tables = [*self._shelf.tables]
        main = self._corpus.story.main_table
        with ui.row().classes("items-end gap-4"):
            self._table = ui.select(tables, label="table", value=main if main in tables else tables[0],
                                    on_change=self._open_table)  # fmt: skip
            self._column = ui.select([], label="column").classes("w-40")
            self._operation = ui.select([*OPERATIONS], label="condition", value="contains")
            self._value = ui.input("value").on("keydown.enter", self._add_filter)
            ui.button("Add filter", on_click=self._add_filter).props("outline no-caps")
            self._shown = ui.select([], label="columns shown", multiple=True, on_change=self._reload).classes("w-40")
            self._shown.props('display-value="choose"')
        self._chips = ui.row()
        self._grid = _Grid(self._shelf, self._choose)
        await self._open_table()

    async def _open_table(self) -> None:
        names = self._shelf.columns(f"rows {self._table.value}")
        self._filters = []
        self._column.set_options(names, value=names[0])
        self._shown.set_options(names, value=names[:AT_FIRST])
        await self._reload()

    async def _add_filter(self) -> None:
        self._filters.append(Filter(self._column.value, self._operation.value, self._value.value or ""))
        await self._reload()

    async def _drop(self, one: Filter) -> None:
        self._filters.remove(one)
        await self._reload()

    async def _reload(self) -> None:
        try:
            await self._grid.open(f"rows {self._table.value}", self._shown.value, self._filters)
        except EarmarkError as error:  # of the filter that was added last
            self._filters.pop()
            ui.notify(str(error), type="warning")
            return
        self._chips.clear()
        with self._chips:
            for one in self._filters:
                chip = ui.chip(" ".join(one), removable=True)
                chip.on("remove", lambda one=one: self._drop(one))

    async def _choose(self, row: dict[str, Any]) -> None:
        table = self._shelf.tables[self._table.value]
        if table.name == REJECTS.name:
            row = await asyncio.to_thread(self._shelf.placed, row)
        clips = await asyncio.to_thread(self._shelf.clips_of, table.name, row)
        says = {field.name: (field.metadata or {}).get(b"description", b"").decode() for field in table.schema}
        self._grid.detail.clear()
        with self._grid.detail:
            self._draw_clips(clips)
            for name, value in row.items():
                if value is not None:
                    with ui.element("div").classes("w-full min-w-0"):
                        ui.label(name).classes("text-xs opacity-70").tooltip(says.get(name, ""))
                        ui.label(_shown(value)).classes("whitespace-pre-wrap break-words")

    def _draw_clips(self, clips: Sequence[tuple[str, str]]) -> None:
        for place, (name, sha256) in enumerate(clips, 1):
            address = f"/clips/{sha256}"  # NiceGUI adds the token
            with ui.element("div").classes("w-full"):
                if "image" in name:
                    ui.image(address).props("fit=contain no-spinner").classes("bg-white")
                else:
                    ui.label(f"{place}: {name}").classes("text-sm")
                    ui.audio(address).props(f'aria-label="clip {place}"')

    async def _draw_compare(self) -> None:
        here = self._shelf.version
        others = [one.name for one in self._store.versions(here.corpus) if one.name != here.name]
        self._changes: _Grid | None = None
        if not others:
            ui.label("There is no other version of this corpus.")
            return
        before = [name for name in others if int(name[1:]) < here.number]
        with ui.row().classes("items-end gap-4"):
            self._other = ui.select(others, label="beside", value=before[-1] if before else others[0]).classes("w-24")
            self._compared = ui.select([*self._shelf.tables], label="table", value=self._table.value)
            ui.button("Compare", on_click=self._compare).props("outline no-caps")
        self._counts = ui.table(rows=[], columns=[]).classes("w-full").props("flat dense")
        self._changes = _Grid(self._shelf, self._choose_change)

    async def _compare(self) -> None:
        assert self._changes is not None
        self._pair = self._compared.value, self._store.find(f"{self._corpus.name}@{self._other.value}")
        await asyncio.to_thread(self._store.fetch, self._pair[1], tables_only=True)
        counts, relation = await asyncio.to_thread(self._shelf.compare, *self._pair)
        _fill(self._counts, ("split", "added", "removed", "changed", "same"), [
            (one.split, *map(number, (one.added, one.removed, one.changed, one.same))) for one in counts
        ])  # fmt: skip
        await self._changes.open(relation, self._shelf.columns(relation)[:AT_FIRST])

    async def _choose_change(self, row: dict[str, Any]) -> None:
        assert self._changes is not None
        was, now = await asyncio.to_thread(self._shelf.both, *self._pair, row)
        clips = await asyncio.to_thread(self._shelf.clips_of, self._pair[0], now or was)
        self._changes.detail.clear()
        with self._changes.detail:
            self._draw_clips(clips)
            differ = [name for name in {**was, **now} if was.get(name) != now.get(name)]
            rows = [(name, _shown(was.get(name)), _shown(now.get(name))) for name in differ]
            beside = ui.table(rows=[], columns=[]).classes("w-full").props("flat dense wrap-cells")
            _fill(beside, ("column", self._pair[1].name, self._shelf.version.name), rows)

    async def _draw_evaluations(self) -> None:
        version = self._shelf.version
        folder = self._store.root / "evaluations" / version.corpus / version.name
        pages = await asyncio.to_thread(lambda: sorted(folder.glob("*/README.md")))
        if not pages:
            ui.label(f"None yet. earmark judge {version.corpus}@{version.name} lists what can be measured.")
        markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link"])
        for page in pages:
            with ui.expansion(page.parent.name, value=page == pages[0]).classes("w-full"):
                ui.html(markdown.render(page.read_text("utf-8")), sanitize=False).classes("prose")


def _shown(value: Any) -> str:
    return "–" if value is None else "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _fill(table: ui.table, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table.columns = [
        {"name": str(at), "field": str(at), "label": head, "align": "left"} for at, head in enumerate(heads)
    ]
    table.rows = [{str(at): cell for at, cell in enumerate(row)} for row in rows]
