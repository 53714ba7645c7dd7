"""`report.html`: one page that a person opens from disk, to look at a version and listen to it.

The page holds all it needs: its policy forbids every request. Texts are escaped by Jinja, sound travels as Base64 in a
block of JSON, and the only script is the one whose hash the policy names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from earmark.schemas.corpus import Story
from earmark.tasks.store.figures import Browser, Grid, Histogram, Page, Sheet, ticks
from earmark.tasks.store.manifest import Manifest, Step

_CODE = re.compile(r"`([^`\n]+)`")
FILTER_VALUES = 40  # a filter with more offers none but the first


def render_report(manifest: Manifest, story: Story, page: Page) -> str:
    """The page's text."""
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
        anchors={name for one in page.sections for it in one.figures if isinstance(it, Grid) for name in it.ids},
        axes_of=axes_of,
        data=_as_json(page.sounds, sheets),
    )


@cache
def _template() -> jinja2.Template:
    """The page's template, compiled: that takes longer than a small build's own work."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.filters.update(number=number, percent=percent, prose=prose, kind=lambda figure: type(figure).__name__)
    return environment.from_string(resources.files("earmark.tasks.store").joinpath("report.html.j2").read_text("utf-8"))


def _bar(step: Step) -> dict[str, Any]:
    """A step's accounts with their shares of what entered."""
    whole = max(step.entered, 1)
    rejected, dropped = sum(step.rejected.values()), sum(step.dropped.values())
    return {
        "step": step,
        "rejected": rejected,
        "dropped": dropped,
        "shares": [100 * part / whole for part in (step.kept, rejected, dropped)],
    }


def filters_of(browser: Browser) -> dict[str, list[str]]:
    """The filters of a sample with their values; one that does not tell rows apart is left out."""
    found: dict[str, set[str]] = {}
    for row in browser.rows:
        for name, value in row.tags.items():
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items() if 1 < len(values) <= FILTER_VALUES}


def axes_of(histogram: Histogram) -> dict[str, Any]:
    """The ticks of both axes with their places from 0 to 1, the upward one's end and its ticks' most letters."""
    highest = max(*(count for _, _, count in histogram.bins), *histogram.before, 1)
    step = ticks(0, highest, 4, least=1)[1][0]
    most = math.ceil(highest / step) * step
    upward = [(at * step, at * step / most) for at in range(round(most / step) + 1)]
    across = ticks(histogram.bins[0][0], histogram.bins[-1][1], least=1 if histogram.whole else 0)
    return {"y": upward, "x": across, "most": most, "digits": max(len(number(value)) for value, _ in upward)}


def _as_json(sounds: Mapping[str, bytes], sheets: Sequence[Sheet]) -> str:
    """Sounds and rows as JSON. Hashes and Base64 hold no `<`, so nothing in it can end the script element."""
    heard = {sha256: base64.b64encode(sounds[sha256]).decode() for sha256 in sorted(sounds)}
    text = json.dumps({"sounds": heard, "sheets": [sheet.packed for sheet in sheets]}, indent=0)
    return text.replace("<", "\\u003c")


def prose(text: str) -> Markup:
    """A sentence with its `names` set as code; whatever else it holds is escaped."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def number(value: float | int | str | None) -> str:
    """A value for a reader: thousands apart, three digits after the point at most."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 else f"{value:.2g}"


def percent(value: float) -> str:
    """A share of one as a percentage."""
    return f"{100 * value:.1f} %"
