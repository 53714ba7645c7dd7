"""One table of results in all its forms: the same figures on a terminal and a page, in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re

import pytest
from rich.console import Console

from earmark.flows.command.tables import TextTable
from earmark.tasks.store.figures import Page, Section
from earmark.tasks.store.report import render_report
from earmark.tasks.store.result_table import Interval, ResultColumn, ResultPage, ResultTable, percent
from tests.store.test_report import MANIFEST, STORY

TABLE = ResultTable(
    "Models",
    (
        *("model", "samples", ResultColumn("SRCC", decimals=3, best="highest")),
        *(ResultColumn("EER", decimals=3, best="lowest"), ResultColumn("difference", decimals=2, signed=True)),
        *(percent("ties"), ResultColumn("length", "s"), ResultColumn("p", decimals=3)),
    ),
    (
        ("a_b & c", 1200, Interval(0.7351, 0.71, 0.757), 0.2, Interval(0.04, -0.02, 0.1), 0.123, 1.5, 0.0004),
        ("d|e", 12, Interval(0.7349), 0.1, -0.5, 0.0, 12, None),
        ("f", 3, 0.5, 0.1, None, None, 0.25, 1.0),
    ),
    "Higher is better.",
    footings=(("mean", 1215, 0.99, None, None, 0.5, None, None),),
)
CELLS = [
    ["a_b & c", "1,200", "0.735 [0.710, 0.757]", "0.200", "+0.04 [-0.02, +0.10]", "12.3 %", "1.50", "< 0.001"],
    ["d|e", "12", "0.735", "0.100", "-0.50", "0.0 %", "12.00", "–"],
    ["f", "3", "0.500", "0.100", "–", "–", "0.25", "1.000"],
    ["mean", "1,215", "0.990", "–", "–", "50.0 %", "–", "–"],
]
BEST = {(0, 2), (1, 2), (1, 3), (2, 3)}  # equal as printed: both are best; a footing never is
SECOND = {(2, 2), (0, 3)}


def test_a_cell_has_its_columns_decimals_unit_and_interval() -> None:
    drawn = TABLE.drawn()
    assert [[cell.text for cell in row] for row in drawn] == CELLS
    for mark, places in (("best", BEST), ("second", SECOND)):
        found = {(i, j) for i, row in enumerate(drawn) for j, cell in enumerate(row) if cell.mark == mark}
        assert found == places
    assert TABLE.headings[6] == "length (s)"
    assert TABLE.numeric == (False, *[True] * 7)


def test_markdown_and_page_mark_best_and_second() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[0] == "Higher is better."
    assert lines[3] == "|---|" + "---:|" * 7
    assert "**0.735 \\[0.710, 0.757\\]**" in lines[4]
    assert lines[6].startswith("| f | 3 | *0.500* | **0.100** |")
    html = render_report(MANIFEST, STORY, Page((Section("S", (TABLE,)),)))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html[html.index("<tbody>") :])
    texts = [re.sub("<.*?>", "", cell).replace("&amp;", "&").replace("&lt;", "<") for cell in cells]
    assert texts[: len(CELLS) * 8] == [text for row in CELLS for text in row]
    assert "<b>0.735 [0.710, 0.757]</b>" in html
    assert html.count("<tfoot>") == html.count("</tfoot>") == 1
    assert html.index("<tfoot>") < html.index("50.0 %")


def test_csv_holds_numbers_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert [row["SRCC"] for row in rows] == ["0.7351", "0.7349", "0.5", "0.99"]
    assert (rows[0]["SRCC low"], rows[0]["SRCC high"], rows[1]["SRCC low"]) == ("0.71", "0.757", "")
    assert (rows[0]["p"], rows[1]["p"], rows[0]["ties"]) == ("0.0004", "", "0.123")


def test_latex_is_a_booktabs_table_with_escaped_text() -> None:
    text = ResultTable("100 % {of} $x_1$ ∞", TABLE.columns, TABLE.rows, footings=TABLE.footings).latex()
    lines = text.splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrrrrr}"
    assert [lines.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 2, 1]
    body = [line for line in lines if line.endswith(r" \\")]
    assert all(len(re.split(r"(?<!\\)&", line)) == 8 for line in body)
    assert body[1].startswith(r"a\_b \& c & 1,200 & \textbf{0.735 [0.710, 0.757]} & \underline{0.200} &")
    assert r"12.3 \%" in body[1]
    assert r"$<$ 0.001" in body[1]
    assert "x$|$y" in ResultTable("", ("a",), (("x|y",),)).latex()  # a bar is a dash in TeX's own fonts


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_terminal_holds_each_figure(width: int) -> None:
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with terminal.capture() as capture:
        terminal.print(TextTable(TABLE), crop=False)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert max(map(len, lines)) <= width
    words = re.sub(r"\s+", " ", re.sub("\x1b[^m]*m", "", " ".join(lines)).replace("\u00a0", " "))
    for text in (text for row in CELLS for text in row):
        assert text in words


def test_a_page_of_results_comes_with_files_of_its_tables() -> None:
    page = ResultPage("Title", (TABLE, TABLE), ("a note",), "Says.", ("plot.svg",))
    files = page.files()
    assert files.keys() == {"README.md", "tables.tex", "table-1.csv", "table-2.csv"}
    assert files["README.md"].startswith(
        "# Title\n\nSays.\n\n![Values with intervals of 95 %](plot.svg)\n\n## Models\n"
    )
    assert files["README.md"].endswith("\n\n- a note\n")
    assert files["tables.tex"].count(r"\end{tabular}") == 2


HOSTILE = ('=HYPERLINK("http://x")', "a\rb", "[/x]", "*foo", "\x1b[31mred", "-1")


def test_text_of_cells_and_headings_is_text_in_each_form() -> None:
    table = ResultTable("T", ("name", *HOSTILE), tuple((text, *HOSTILE) for text in HOSTILE))
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert len(rows) == 1 + len(HOSTILE)
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    body = [line for line in table.latex().splitlines() if line.endswith("\\\\")]
    assert not [line for line in body if line.startswith(("[", "*"))]
    for width in (200, 40):  # a grid, and blocks of lines
        console = Console(width=width, file=io.StringIO(), force_terminal=False)
        console.print(TextTable(table))
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert "[/x]" in shown
        assert "\x1b" not in shown


def test_what_is_no_number_is_never_best_and_zero_has_no_sign() -> None:
    column = ResultColumn("x", decimals=2, best="highest")
    drawn = ResultTable("T", (column,), ((float("nan"),), (1.0,), (0.5,), (-0.001,))).drawn()
    assert [row[0].mark for row in drawn] == [None, "best", "second", None]
    assert drawn[3][0].text == "0.00"
