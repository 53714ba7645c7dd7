"""Render `report.html`, one page to look at a version and listen to it, opened from disk.

The page is self-contained: its policy forbids every request. Jinja escapes texts, audio is Base64 in a block of JSON,
and the policy allows only one script, by its hash.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from earmark.schemas.corpus import Story
from earmark.tasks.store.figures import Browser, Histogram, Page, Sheet, ticks
from earmark.tasks.store.manifest import Manifest, Step
from earmark.tasks.store.result_table import ResultTable, number

_CODE = re.compile(r"`([^`\n]+)`")
FILTER_VALUES = 40  # filters with more values are left out


def render_report(manifest: Manifest, story: Story, page: Page) -> str:
    """Return the page's text."""
    folder = resources.files("earmark.tasks.store")
    script, style = (folder.joinpath(name).read_text("utf-8") for name in ("report.js", "report.css"))
    sheets = [figure for section in page.sections for figure in section.figures if isinstance(figure, Sheet)]
    return _template().render(
        manifest=manifest,
        story=story,
        page=page,
        funnel=[_bar(step) for step in manifest.steps],
        filters=filters_of,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=style,
        sheets=sheets,
        anchors={name for one in page.sections for it in one.figures if isinstance(it, ResultTable) for name in it.ids},
        axes_of=axes_of,
        data=_as_json(page, sheets),
        origin="" if page.others is None else " 'self'",
    )


@cache
def _template() -> jinja2.Template:
    """Return the compiled template; compiling takes longer than a small build's own work."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters.update(number=number, percent=percent, prose=prose, kind=lambda figure: type(figure).__name__)
    return environment.from_string(resources.files("earmark.tasks.store").joinpath("report.html.j2").read_text("utf-8"))


def _bar(step: Step) -> dict[str, Any]:
    """Return a step's accounts with their percentages of the entered items."""
    whole = max(step.entered, 1)
    rejected, dropped = sum(step.rejected.values()), sum(step.dropped.values())
    return {
        "step": step,
        "rejected": rejected,
        "dropped": dropped,
        "shares": [100 * part / whole for part in (step.kept, rejected, dropped)],
    }


def filters_of(browser: Browser) -> dict[str, list[str]]:
    """Return a sample's filters with their values, omitting filters with a single or too many values."""
    found: dict[str, set[str]] = {}
    for row in browser.rows:
        for name, value in row.tags.items():
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items() if 1 < len(values) <= FILTER_VALUES}


def axes_of(histogram: Histogram) -> dict[str, Any]:
    """Return both axes' ticks with positions from 0 to 1, the y axis's end and its longest label's length."""
    highest = max(*(count for _, _, count in histogram.bins), *histogram.before, 1)
    step = ticks(0, highest, 4, least=1)[1][0]
    most = math.ceil(highest / step) * step
    upward = [(at * step, at * step / most) for at in range(round(most / step) + 1)]
    across = ticks(histogram.bins[0][0], histogram.bins[-1][1], least=1 if histogram.whole else 0)
    return {"y": upward, "x": across, "most": most, "digits": max(len(number(value)) for value, _ in upward)}


def _as_json(page: Page, sheets: Sequence[Sheet]) -> str:
    """Return sounds and rows as JSON without `<`, so that nothing in it can end the script element."""
    sounds = {sha256: base64.b64encode(page.sounds[sha256]).decode() for sha256 in sorted(page.sounds)}
    packed = [sheet.packed for sheet in sheets]
    return json.dumps({"encoding": page.encoding, "sounds": sounds, "sheets": packed}, indent=0).replace("<", "\\u003c")


def sounds_of(page: bytes, encoding: str) -> dict[str, bytes]:
    """Return the sounds of a rendered page by their clips' SHA-256; none if the page does not name that encoding."""
    data = page.rpartition(b'<script type="application/json" id="data">')[2].partition(b"</script>")[0]
    if not encoding or not data.startswith(f'{{\n"encoding": "{encoding}",\n'.encode()):
        return {}
    return {sha256: base64.b64decode(sound) for sha256, sound in json.loads(data)["sounds"].items()}


def prose(text: str) -> Markup:
    """Return an escaped sentence with its `names` set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def percent(value: float) -> str:
    """Return a fraction as a percentage."""
    return f"{100 * value:.1f} %"
