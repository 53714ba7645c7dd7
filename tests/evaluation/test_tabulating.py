"""Tables of models by groups: every cell of the music tables, real votes to the digit, marks, rules and refusals."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.tables import TextTable
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, StoreError
from earmark.tasks.evaluation.comparison import comparison_page
from earmark.tasks.evaluation.ranking import ranking_page
from earmark.tasks.evaluation.results import evaluation_page
from earmark.tasks.evaluation.tabulating import table_page
from earmark.tasks.evaluation.version_tables import version_page
from tests.conftest import real_path
from tests.evaluation.test_paper_tables import cells
from tests.evaluation.test_ranking import on_prompts
from tests.evaluation.test_vote_scores import REAL
from tests.human_preferences.votes import vote, write_jsonl

Row = dict[str, Any]


def real_scores(path: Path, out: Path) -> str:
    """The scores of the paper's reward model as a file by sample: a clip of two votes has two scores."""
    rows = []
    for line, row in enumerate(map(json.loads, path.read_text("utf-8").splitlines()), 1):
        for name, field in (("musicality", "musicality"), ("alignment", "text-music alignment")):
            scores = {"score_a": row[f"predicted_{field}"], "score_b": row[f"predicted_{field}_b"]}
            rows.append({"id": f"cmi-pref-{line}-{name}", **scores})
    write_jsonl(out, rows)
    return str(out)


@pytest.mark.slow
def test_real_votes_give_the_row_of_table_11_to_the_digit(tmp_path: Path) -> None:
    path = real_path(REAL)
    scores = real_scores(path, tmp_path / "scores.jsonl")
    command = ["eval", "tables", str(path), "--layout", "cmi-rewardbench", "-m", f"CMI-RM={scores}"]
    command += ["--table", "cmi-rewardbench-11", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    said = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    facts = json.loads(said.stdout)
    sizes = {"Total": 500, "Conf < 3": 66, "Conf = 3": 128, "Conf > 3": 306, "Instru": 250, "Vocal": 250}
    assert [one["heading"] for one in facts["columns"]] == [f"{name} ({count})" for name, count in sizes.items()]
    lines = pd.read_json(path, lines=True)
    lead = lines["predicted_musicality"] - lines["predicted_musicality_b"]
    hit = np.where(lines["preference-musicality"] == "model_a", lead > 0, lead < 0)
    sure = lines["confidence_preference-musicality"].astype(float)
    parts = [hit, hit[sure < 3], hit[sure == 3], hit[sure > 3], hit[lines["lyrics"] == ""], hit[lines["lyrics"] != ""]]
    found = [cell["value"] for cell in facts["rows"][0]["cells"]]
    assert found == pytest.approx([part.mean() for part in parts])
    assert [round(value, 3) for value in found[:4]] == [0.780, 0.667, 0.750, 0.817]
    text = CliRunner().invoke(app, [*command, "--no-intervals"], catch_exceptions=False).stdout
    assert re.search(r"CMI-RM +78\.00 +66\.67 +75\.00 +81\.70", text)


def test_figures_of_systems_are_of_their_means_and_systems_may_be_the_sample(bench: Path, tmp_path: Path) -> None:
    """Twelve rated clips of six systems: scores that are right by system and shuffled within it."""
    lines = [json.loads(line) for line in bench.read_text("utf-8").splitlines()]
    rated = [row for row in lines if row["source"] == "PAM"]
    for number, row in enumerate(rated):
        row["model_a"] = f"S{number // 2}"
    write_jsonl(tmp_path / "pam.jsonl", rated)
    scores = [number // 2 * 10.0 - number % 2 for number in range(12)]
    rows = [{"clip": row["audio-path"], "musicality": score} for row, score in zip(rated, scores, strict=True)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    (tmp_path / "own.toml").write_text(
        'title = "own"\nevaluation = "pam-musicality"\ncolumns = [{ metric = "srcc", level = "system" }, '
        '{ metric = "srcc" }]\n'
    )
    models = {"m": str(tmp_path / "m.jsonl")}
    facts = bench_table(tmp_path / "pam.jsonl", tmp_path, models, "--table", str(tmp_path / "own.toml"))
    of_systems, of_clips = (cell["value"] for cell in facts["rows"][0]["cells"])
    truth = [row["musicality"] for row in rated]
    assert of_systems == pytest.approx(1.0)
    assert of_clips == pytest.approx(stats.spearmanr(scores, truth).statistic)
    assert any("means by system are correlated" in note for note in facts["notes"])
    more = ("-e", "pam-musicality", "--metric", "lcc")
    by_clip = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more)["rows"][0]["cells"][0]
    by_system = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more, "--sampled", "system")
    cell = by_system["rows"][0]["cells"][0]
    assert cell["value"] == by_clip["value"]
    assert cell["high"] - cell["low"] > by_clip["high"] - by_clip["low"]
    assert any("share the same system" in note for note in by_system["notes"])
    both = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more, "--sampled", "clips+system")
    assert any("share a clip, a prompt or a triplet or the same system" in note for note in both["notes"])
    assert both["rows"][0]["cells"][0]["value"] == cell["value"]


MONTHS = ("2025-07", "2025-08", "2025-09", "2025-10", "2025-11", "2025-12")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the layout of CMI-RewardBench: votes of every kind, battles of six months, and rated clips."""
    lines: list[Row] = []
    for number in range(48):
        sure = ["1.5", "3.0", "4.5"][number // 4 % 3]
        lines.append(
            vote(
                number,
                **{"id": f"v{number}", "source": "cmi-arena-annotation", "lyrics": "la" if number % 2 else ""},
                **{"ref-audio-path": f"ref-{number}.wav" if number // 2 % 2 else ""},
                **{"confidence_preference-musicality": sure, "confidence_preference-alignment": sure},
                **{"preference-musicality": "model_a", "preference-alignment": "model_a"},
            )
        )
    for number in range(36):
        battle = {"audio-path": f"arena-{number}-a.wav", "audio2": f"arena-{number}-b.wav", "preference": "model_a"}
        more = {"source": "Music Arena", "id": f"m{number}", "prompt": f"battle {number}", "prompt id": f"b{number}"}
        lyrics = {"lyrics": "la" if number % 2 else ""}
        lines.append({**battle, **more, **lyrics, "date": f"{MONTHS[number // 2 % 6]}-01", "user id": "x"})
    for task in ("PAM", "MusicEval"):
        for number in range(12):
            rated = {"audio-path": f"{task}/{number}.wav", "musicality": 1 + number / 4, "prompt": f"{task} {number}"}
            lines.append({"source": task, "id": f"{task}{number}", **rated, "text-music alignment": 4 - number / 6})
    path = tmp_path_factory.mktemp("bench") / "all_test.jsonl"
    write_jsonl(path, lines)
    return path


def clip_scores(path: Path, out: Path, wrong: Callable[[int], bool]) -> str:
    """Scores by clip: the truth of rated clips, and the first clip of a vote unless its number is wrong.

    Musicality likes the second clip of every third battle, alignment likes the first twice as much.
    """
    rows: dict[str, Row] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        number = int(re.findall(r"\d+", row["id"])[0])
        if row["source"] in ("PAM", "MusicEval"):
            scores = {"musicality": row["musicality"], "alignment": -row["text-music alignment"]}
            rows[row["audio-path"]] = scores
            continue
        lead = 1 - 2 * wrong(number)
        scores = {"musicality": lead, "alignment": lead}
        if row["source"] == "Music Arena":
            scores = {"musicality": -1 if number % 3 == 0 else 1, "alignment": 2}
        rows[row["audio-path"]], rows[row["audio2"]] = scores, {"musicality": 0, "alignment": 0}
    write_jsonl(out, ({"clip": clip, **scores} for clip, scores in rows.items()))
    return str(out)


def bench_table(bench: Path, folder: Path, models: dict[str, str], *more: str) -> Row:
    """The facts of a table on the benchmark's file."""
    command = ["eval", "tables", str(bench), "--layout", "cmi-rewardbench", "--store", str(folder / "store")]
    command += [*more, "--json", *(f"-m{name}={file}" for name, file in models.items())]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: Row = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_cell_of_the_music_tables_is_the_truth_of_the_simulation(bench: Path, tmp_path: Path) -> None:
    wrong = {"half": lambda n: n % 8 < 4, "seventh": lambda n: n % 7 == 0}
    models = {name: clip_scores(bench, tmp_path / f"{name}.jsonl", one) for name, one in wrong.items()}
    told = {number: bench_table(bench, tmp_path, models, "--table", f"cmi-rewardbench-{number}")
            for number in (2, 3, 4, 10, 11, 12, 13)}  # fmt: skip
    shown = {number: cells(facts) for number, facts in told.items()}

    def share(model: str, kept: Callable[[int], bool]) -> float:
        numbers = [number for number in range(48) if kept(number)]
        return 100 * sum(not wrong[model](number) for number in numbers) / len(numbers)

    def band(number: int) -> int:
        return number // 4 % 3

    def sung(number: int) -> bool:
        return number % 2 == 1

    def heard(number: int) -> bool:
        return number // 2 % 2 == 1

    for model in wrong:
        whole = share(model, lambda n: True)
        rated = {f"{task} {name}": 1.0 for task in ("PAM", "MusicEval") for name in ("LCC", "SRCC", "K-Tau")}
        arena = 100 * 2 / 3
        truth: dict[int, dict[str, float | None]] = {  # of a battle without lyrics such a file does not tell the type
            2: {**rated, "Music Arena ACC (%)": arena, "CMI-Pref ACC (%)": whole},
            3: {
                **{f"PAM {name}": -1.0 for name in ("LCC", "SRCC", "K-Tau")},
                "CMI-Pref text": share(model, lambda n: not heard(n) and not sung(n)),
                "CMI-Pref text + lyrics": share(model, lambda n: not heard(n) and sung(n)),
                "CMI-Pref text + audio": share(model, lambda n: heard(n) and not sung(n)),
                "CMI-Pref text + lyrics + audio": share(model, lambda n: heard(n) and sung(n)),
                "CMI-Pref w/o Audio": share(model, lambda n: not heard(n)),
                "CMI-Pref w/ Audio": share(model, heard),
            },
            4: {"PAM Mean SRCC": 0.0, "MusicEval SRCC": 1.0, "Music Arena Acc. (%)": 100.0,
                "CMI-Pref Mean Acc. (%)": whole},
        }  # fmt: skip
        months = {"Jul-Aug": (0, 1), "Sep": (2,), "Oct": (3,), "Nov": (4,), "Dec": (5,)}

        def battles(kept: Callable[[int], bool]) -> float:
            numbers = [number for number in range(36) if kept(number)]
            return 100 * sum(number % 3 != 0 for number in numbers) / len(numbers)

        of_months = {
            f"Time Period (Month) {name}": battles(lambda n, held=held: n // 2 % 6 in held)
            for name, held in months.items()
        }
        truth[10] = {"Total": arena, **of_months, "Data Type Instru": None,
                     "Data Type Vocal": battles(sung)}  # fmt: skip
        for number, kept in ((11, lambda n: True), (12, lambda n: not heard(n)), (13, heard)):
            groups: dict[str, Callable[[int], bool]] = {
                "Total": lambda n: True,
                **{f"Confidence Level Conf {sign} 3": lambda n, at=at: band(n) == at for at, sign in enumerate("<=>")},
                **{"Data Type Instru": lambda n: not sung(n), "Data Type Vocal": sung},
            }
            truth[number] = {}
            for name, group in groups.items():
                held = [n for n in range(48) if kept(n) and group(n)]
                truth[number][f"{name} ({len(held)})"] = share(model, lambda n, held=held: n in held)
        for number, expected in truth.items():
            assert shown[number][model] == pytest.approx(expected, abs=1e-9), number
    facts = bench_table(bench, tmp_path, models, "--table", "anyaudio-judge-3")
    assert cells(facts)["half"] == pytest.approx({"PAM LCC": -1.0, "PAM SRCC": -1.0, "PAM KTAU": -1.0})
    assert any("paper's test set 47, 58 and 145" in note for note in told[12]["notes"])
    assert any("goes by musicality plus alignment" in note for note in told[4]["notes"])


def latex_rows(text: str) -> tuple[str, list[int]]:
    """The specification of columns of a booktabs table, and the width of each line, spans counted."""
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    spec = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)[0]
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    widths = []
    for line in text.splitlines():
        if line.endswith(r"\\"):
            parts = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
            spans = [int((re.findall(r"\\multicolumn\{(\d+)\}", part) or [1])[0]) for part in parts]
            widths.append(sum(spans))
            assert line.count("{") == line.count("}")
    return spec, widths


def render(table: TextTable, width: int) -> str:
    """A table as a pipe gets it: without styles."""
    place = io.StringIO()
    Console(file=place, width=width).print(table)
    return place.getvalue()


def test_the_best_is_bold_the_second_underlined_and_upper_headings_span(bench: Path, tmp_path: Path) -> None:
    wrong = {"a & b": lambda n: n % 8 < 4, "seventh": lambda n: n % 7 == 0, "none": lambda n: False}
    models = {name: clip_scores(bench, tmp_path / f"{at}.jsonl", one) for at, (name, one) in enumerate(wrong.items())}
    out = tmp_path / "out"
    more = ("--table", "cmi-rewardbench-11", "--no-intervals", "--baseline", "seventh", "--out", str(out))
    bench_table(bench, tmp_path, models, *more)
    text = (out / "tables.tex").read_text("utf-8")
    spec, widths = latex_rows(text)
    assert {len(spec)} == {*widths} == {7}
    assert r"\multicolumn{3}{c}{Confidence Level} & \multicolumn{2}{c}{Data Type}" in text
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-7}" in text
    assert r"a \& b & 50.00 (-35.42)* &" in text
    assert r"seventh & \underline{85.42} &" in text
    assert r"none & \textbf{100.00 (+14.58)*} &" in text
    page = (out / "README.md").read_text("utf-8")
    assert r"| seventh | *85.42* |" in page
    lines = render(TextTable(table_page(json.loads((out / "table.json").read_bytes())).tables[0]), 400).splitlines()
    assert re.search(r"seventh +85\.42 △", next(line for line in lines if "seventh" in line))
    assert re.search(r"none +100\.00 \(\+14\.58\)\* ▲", next(line for line in lines if line.startswith("none")))
    table = list(csv.DictReader(io.StringIO((out / "table-1.csv").read_text("utf-8"))))
    first = {name: value for name, value in table[0].items() if name.startswith("Total (48)")}
    assert [*first] == ["Total (48)", "Total (48) low", "Total (48) high", "Total (48) difference", "Total (48) p"]
    assert float(first["Total (48)"]) == 50
    assert float(first["Total (48) difference"]) == pytest.approx(100 * (24 - 41) / 48)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (Debian: texlive-latex-recommended)")
def test_latex_of_each_kind_of_table_compiles(bench: Path, tmp_path: Path) -> None:
    odd = r"a & b_%$#{}~^\\"
    wrong = {odd: lambda n: n % 8 < 4, "[x] é": lambda n: n % 7 == 0, "*best|w/ Image": lambda n: False}
    models = {name: clip_scores(bench, tmp_path / f"{at}.jsonl", one) for at, (name, one) in enumerate(wrong.items())}
    pages = [
        table_page(bench_table(bench, tmp_path, models, "--table", f"cmi-rewardbench-{number}", "--baseline", odd))
        for number in (3, 11)
    ]
    shared = ["--layout", "cmi-rewardbench", "--store", str(tmp_path / "store"), "--json"]
    compared = ["eval", "compare", str(bench), *(str(tmp_path / f"{at}.jsonl") for at in range(3)), *shared]
    run = ["eval", "run", str(bench), "--scores", str(tmp_path / "0.jsonl"), "-e", "pam-musicality", *shared]
    told = [json.loads(CliRunner().invoke(app, one, catch_exceptions=False).stdout) for one in (compared, run)]
    pages += [comparison_page(told[0]), evaluation_page(told[1][0])]
    of = {"corpus": "human-preferences", "version": "v1"}
    board = {"board": odd, "modality": None, **on_prompts(np.random.default_rng(1), 20)}
    pages.append(ranking_page({**of, "boards": [board]}))
    rows = [["Krippendorff's α", "0.382", None], ["[1, 2]", "< 3", "≥ 1"]]
    pages.append(version_page({**of, "title": odd, "columns": ["Metric", "ΔMOS", "FAD∞ ½"], "rows": rows, "notes": []}))
    tables = "\n\\clearpage\n".join(page.files()["tables.tex"] for page in pages)
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "tables.tex").write_text(f"{head}{tables}\\end{{document}}\n", "utf-8")
    ran = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert tables.count(r"\begin{tabular}") > 10


def test_groups_are_named_at_call_time(bench: Path, tmp_path: Path) -> None:
    models = {"half": clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)}
    facts = bench_table(bench, tmp_path, models, "-e", "cmi-pref-musicality", "--by", "reference+confidence_band")
    assert [(one["over"], one["heading"], one["samples"]) for one in facts["columns"]] == [
        ("", "all", 48),
        *(
            ("reference+confidence_band", f"{ref} / {band}", 8)
            for ref in ("with", "without")
            for band in ("3", "<3", ">3")
        ),
    ]
    levels = bench_table(bench, tmp_path, models, "-e", "pam-musicality", "--metric", "mse", "--metric", "srcc")
    assert [cell["value"] for cell in levels["rows"][0]["cells"]] == [0, 1]


def test_rules_of_ties_and_of_missing_answers_are_chosen_by_name(bench: Path, tmp_path: Path) -> None:
    """Divide 48 votes into 12 each: tied, without an answer, right, wrong."""
    said = ["tie", "", "a", "b"]
    rows = [{"id": f"v{number}-musicality", "choice": said[number % 4]} for number in range(48)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    expected = {("wrong", "wrong"): 12 / 48, ("half", "wrong"): 18 / 48, ("wrong", "left-out"): 12 / 36,
                ("half", "left-out"): 18 / 36}  # fmt: skip
    for (ties, unanswered), share in expected.items():
        rules = ("--rule", f"ties={ties}", "--rule", f"unanswered={unanswered}")
        facts = bench_table(bench, tmp_path, {"m": str(tmp_path / "m.jsonl")}, "-e", "cmi-pref-musicality", *rules)
        assert facts["rows"][0]["cells"][0]["value"] == pytest.approx(share)
        assert sum(f"ties={ties}" in note or f"unanswered={unanswered}" in note for note in facts["notes"]) == 2


def test_an_interval_is_of_the_samples_that_the_model_answered(bench: Path, tmp_path: Path) -> None:
    """A model answers two of 48 votes, each on a prompt of its own: Wilson's interval, with Student's t, is of two."""
    for name, count in (("few", 2), ("whole", 48)):
        said = [{"id": f"v{at}-musicality", "choice": "a" if at < count else ""} for at in range(48)]
        write_jsonl(tmp_path / f"{name}.jsonl", said)
    models = {name: str(tmp_path / f"{name}.jsonl") for name in ("few", "whole")}
    facts = bench_table(bench, tmp_path, models, "-e", "cmi-pref-musicality", "--rule", "unanswered=left-out")
    for row, count in zip(facts["rows"], (2, 48), strict=True):
        (cell,) = row["cells"]
        assert (cell["value"], cell["samples"], cell["high"]) == (1, count, pytest.approx(1))
        assert cell["low"] == pytest.approx(count / (count + stats.t.ppf(0.975, count - 1) ** 2))


def test_a_column_without_samples_is_empty(bench: Path, tmp_path: Path) -> None:
    lines = [line for line in bench.read_text("utf-8").splitlines() if '"MusicEval"' not in line]
    (tmp_path / "all_test.jsonl").write_text("\n".join(lines), "utf-8")
    models = {"m": clip_scores(tmp_path / "all_test.jsonl", tmp_path / "m.jsonl", lambda _: False)}
    facts = bench_table(tmp_path / "all_test.jsonl", tmp_path, models, "--table", "cmi-rewardbench-4")
    found = {one["heading"]: cell for one, cell in zip(facts["columns"], facts["rows"][0]["cells"], strict=True)}
    assert [name for name, cell in found.items() if cell is None] == [name for name in found if "MusicEval" in name]


def test_true_ties_stay_or_are_left_out(tmp_path: Path) -> None:
    """Of 8 votes 2 are ties; the model says a, and once tie."""
    ways = ["tie", "tie", *["model_a"] * 4, *["model_b"] * 2]
    lines = [
        vote(at, **{"id": f"v{at}", "source": "cmi-arena-annotation", "preference-musicality": way})
        for at, way in enumerate(ways)
    ]
    write_jsonl(tmp_path / "all_test.jsonl", lines)
    rows = [{"id": f"v{at}-musicality", "choice": "a" if at else "tie"} for at in range(8)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    for rule, share in (("kept", 5 / 8), ("left-out", 4 / 6)):
        more = ("-e", "cmi-pref-musicality", "--rule", f"true_ties={rule}")
        facts = bench_table(tmp_path / "all_test.jsonl", tmp_path, {"m": str(tmp_path / "m.jsonl")}, *more)
        assert facts["rows"][0]["cells"][0]["value"] == pytest.approx(share)


def test_a_difference_is_of_the_samples_that_both_models_have(bench: Path, tmp_path: Path) -> None:
    """A model is right about the even votes: the same answers without the odd ones are the same model."""
    answers = [{"id": f"v{number}-musicality", "choice": "b" if number % 2 else "a"} for number in range(48)]
    write_jsonl(tmp_path / "whole.jsonl", answers)
    write_jsonl(tmp_path / "half.jsonl", [{**row, "choice": row["choice"].strip("b")} for row in answers])
    write_jsonl(tmp_path / "other.jsonl", ({"id": f"v{number}-alignment", "choice": "a"} for number in range(48)))
    models = {name: str(tmp_path / f"{name}.jsonl") for name in ("whole", "half", "other")}
    (tmp_path / "own.toml").write_text(
        'title = "own"\ncolumns = [{ evaluation = "cmi-pref-musicality" }, { evaluation = "cmi-pref-alignment" }]\n'
    )
    more = ("--table", str(tmp_path / "own.toml"), "--rule", "unanswered=left-out", "--baseline", "whole")
    facts = bench_table(bench, tmp_path, models, *more)
    whole, half, other = ({**row}["cells"] for row in facts["rows"])
    assert [whole[0]["value"], half[0]["value"]] == [0.5, 1]
    assert (half[0]["difference"]["value"], half[0]["difference"]["p"]) == (0, 1)
    assert [other[0], whole[1], half[1], "difference" in other[1]] == [None, None, None, False]
    assert any("difference to whole on the samples that both models have" in note for note in facts["notes"])


def test_a_difference_with_gaps_is_that_of_a_comparison(bench: Path, tmp_path: Path) -> None:
    """Scores of rated clips, some of which each model lacks: `eval compare` takes the clips that both have."""
    source = np.random.default_rng(4)
    files = []
    for name in "ab":
        rows = [
            {"clip": f"PAM/{number}.wav", "musicality": None if number % 5 == (name == "b") else source.normal()}
            for number in range(12)
        ]
        files.append(tmp_path / f"{name}.jsonl")
        write_jsonl(files[-1], rows)
    of = ("-e", "pam-musicality", "--layout", "cmi-rewardbench", "--store", str(tmp_path / "store"), "--json")
    done = CliRunner().invoke(app, ["eval", "compare", str(bench), *map(str, files), *of], catch_exceptions=False)
    (clips, *_) = json.loads(done.stdout)["evaluations"]
    compared = {one["metric"]: one for one in clips["differences"]}
    metrics = ("lcc", "srcc", "ktau")
    models = {file.stem: str(file) for file in files}
    more = ("-e", "pam-musicality", *(f"--metric={one}" for one in metrics), "--baseline", "b")
    first, second = (row["cells"] for row in bench_table(bench, tmp_path, models, *more)["rows"])
    for metric, cell, base in zip(metrics, first, second, strict=True):
        expected = {key: compared[metric][key] for key in ("value", "low", "high", "p")}
        assert {key: cell["difference"][key] for key in expected} == pytest.approx(expected)
        assert cell["difference"]["value"] != pytest.approx(cell["value"] - base["value"])


@pytest.mark.slow
def test_an_earlier_run_gives_the_cells_of_its_file_and_two_files_one_row(bench: Path, tmp_path: Path) -> None:
    file = clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)
    run = ["eval", "run", str(bench), "--layout", "cmi-rewardbench", "--scores", file, "--out", str(tmp_path / "run")]
    CliRunner().invoke(
        app, [*run, "--store", str(tmp_path / "store"), "-e", "cmi-pref-musicality"], catch_exceptions=False
    )
    rows = [{"id": f"v{at}-alignment", "choice": "a" if at % 8 >= 4 else "b"} for at in range(48)]
    write_jsonl(tmp_path / "alignment.jsonl", rows)
    models = {"file": file, "run": str(tmp_path / "run")}
    more = ("--table", "cmi-rewardbench-4", f"-mrun={tmp_path / 'alignment.jsonl'}")
    of_run, of_file = (row["cells"] for row in bench_table(bench, tmp_path, models, *more)["rows"])
    assert of_file[3] == of_run[3]
    assert of_file[3]["value"] == 0.5
    assert of_run[:3] == [None] * 3


@pytest.mark.slow
def test_a_file_with_the_clips_and_without_the_column_says_so(bench: Path, tmp_path: Path) -> None:
    rows = [{"clip": f"{number}-{side}.wav", "musicality": number} for number in range(48) for side in "ab"]
    write_jsonl(tmp_path / "m.jsonl", rows)
    facts = bench_table(bench, tmp_path, {"m": str(tmp_path / "m.jsonl")}, "--table", "cmi-rewardbench-4")
    assert [cell for cell in facts["rows"][0]["cells"] if cell] == []
    told = "\n".join(facts["notes"])
    assert re.search(r"no figure of m on cmi-pref-alignment, for which .*m.jsonl has no column alignment", told)
    assert re.search(r"no figure of m on musiceval-musicality, for which .*m.jsonl has none of its clips", told)
    command = ["eval", "run", str(bench), "--layout", "cmi-rewardbench", "--scores", str(tmp_path / "m.jsonl")]
    shown = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "store")], catch_exceptions=False)
    assert re.search(r"not measured: cmi-pref-alignment, for which\s.*has\sno\scolumn\salignment", shown.output, re.S)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (("--table", "mos-rmbench-22"), ConfigError, "no table 'mos-rmbench-22'; did you mean 'mos-rmbench-2'"),
        (("--table", "mos-rmbench-2"), StoreError, "is a table of mos-preferences"),
        (("--table", "mos-rmbench-3"), ConfigError, r"has differences: name the model .*\(--baseline\)"),
        (("--table", "cmi-rewardbench-11", "--by", "month"), ConfigError, "leave --evaluation, --by and --metric out"),
        (("-e", "cmi-pref-musicality", "--by", "mood"), StoreError, "has no column 'mood' here; columns: .*modality"),
        (("-e", "cmi-pref-musicality", "--metric", "lcc"), StoreError, r"\(preference\) has no metric 'lcc'"),
        (("-e", "cmi-pref-musicality", "--metric", "loud"), ConfigError, "metric: Input should be 'accuracy'"),
        (("-e", "cmi-pref-musicality", "--rule", "ties=often"), ConfigError, "rules.ties: Input should be 'wrong'"),
        (("-e", "cmi-pref-musicality", "--baseline", "who"), ConfigError, "--baseline: no model 'who'; models: half"),
        (("-e", "music-arena", "-mhalf={}"), InputError, "'half' has predictions of 'music-arena' from several"),
    ],
)
def test_what_makes_no_table_is_one_line(
    bench: Path, tmp_path: Path, options: tuple[str, ...], error: type[EarmarkError], says: str
) -> None:
    file = clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)
    command = ["eval", "tables", str(bench), "--layout", "cmi-rewardbench", "--store", str(tmp_path / "store")]
    command += ["--rule", "arena=sum", f"-mhalf={file}", *(one.format(file) for one in options)]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, error), done.output
    assert re.search(says, str(done.exception))
    assert "\n" not in str(done.exception)
