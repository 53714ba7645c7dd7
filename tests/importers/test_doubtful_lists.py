"""Lists whose ratings, clips or scale have two readings: `earmark init` takes none of them without asking."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.reasons import Reject
from earmark.schemas.toml import read_toml
from earmark.tasks.importers.guessing import guess_table
from earmark.tasks.importers.lists import Rating
from earmark.tasks.importers.sniffing import read_name
from tests.importers.test_guessing import init, read, told

SCORES = [1 + (5 * n + n // 4) % 5 for n in range(24)]  # two of each of twelve clips
CLIPS = [f"c{n // 2}.wav" for n in range(24)]


def table(header: str, form: str) -> str:
    """A row a rating, by two listeners."""
    words = ("", "Bad", "Poor", "Fair", "Good", "Excellent")
    rows = [
        form.format(clip=clip, n=n, who=f"l{n % 2}", score=score, word=words[score], digit=chr(0xFF10 + score))
        for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
    ]
    return "\n".join([header, *rows]) + "\n"


def means(config: Path) -> dict[str, float]:
    rows = pd.DataFrame([row for row in read(config) if isinstance(row, Rating)])
    return {str(clip): float(mean) for clip, mean in rows.groupby("file")["score"].mean().items()}


WRITTEN = {
    "percent": ("{clip},{who},{score}0 %", 10, [0, 100]),
    "stars": ("{clip},{who},{score} stars", 1, [1, 5]),
    "points": ("{clip},{who},{score}分", 1, [1, 5]),
    "label-first": ("{clip},{who},{word} ({score})", 1, [1, 5]),
    "interval": ("{clip},{who},{score}.0 ± 0.3", 1, [1, 5]),
    "full-width": ("{clip},{who},{digit}", 1, [1, 5]),
    "minus-sign": ("{clip},{who},−{score}", -1, [-5, -1]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_ratings_with_units_and_labels_are_their_numbers(name: str, tmp_path: Path) -> None:
    form, times, scale = WRITTEN[name]
    (tmp_path / "t.csv").write_text(table("clip,rater,rating", form))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    frame = pd.DataFrame({"clip": CLIPS, "score": SCORES})
    assert means(tmp_path / "my.toml") == pytest.approx((times * frame.groupby("clip")["score"].mean()).to_dict())
    assert read_toml(tmp_path / "my.toml")["sources"][0]["scale"] == scale


DOUBTED = {
    "totals": (table("clip,mos", "{clip},{score}") + "Mean:,3.1\n", "sum others up ('Mean:')"),
    "totals-of-ids": (table("clip,mos", "{n}x,{score}") + "平均,3.1\n", "sum others up ('平均')"),
    "utterances-of-systems": (
        table("utterance,system,mos", "u{n},s1,{score}") + table("u0,s2,3", "u{n},s2,{score}"),
        "file = '{system}/{utterance}.wav'",
    ),
    "from-zero": (table("clip,rater,response", "{clip},{who},{score}").replace(",5\n", ",0\n"), "scale = [0, 4]"),
    "two-in-a-cell": (table("clip,scores", '{clip},"{score},{score}"'), "a decimal comma, or several ratings?"),
    "attention": (
        table("clip,trap_question,score", "{clip},no,{score}") + "x.wav,yes,1\n",
        'trap_question marks rows ("no" 24, "yes" 1)',
    ),
    "phases": (
        table("clip,rater,phase,rating", "{clip},{who},before,{score}") + table("", "{clip},{who},after,1").lstrip(),
        'phase holds several questions ("after", "before")',
    ),
    **{
        name: (table(f"clip,rater,{name}", "{clip},{who},{score}"), f"{name}: is a low one good (a school grade, how")
        for name in ("impairment", "annoyance", "distortion rating", "Listening effort score", "Note")
    },
    "days": (
        table("clip,rating", "{clip},0{score}. Mai"),  # as Excel in German shows 4.5
        "rating is called a rating and holds no numbers (01. Mai, 02. Mai, 03. Mai)",
    ),
    **{
        name: (f"{header}\n" + "".join(f"c{n // 2}.wav,{said[n % 2]},{n // 2 % 5 + 1}\n" for n in range(24)), says)
        for name, header, said, says in [
            ("numbered", "wav,question,score", ("1", "2"), 'question holds several questions ("1", "2")'),
            ("numbered-words", "wav,question,score", ("1 - Naturalness", "2 - Similarity"), "question holds several q"),
            ("of-a-listener", "wav,rater,asked,score", ("l1,1 - Nat.", "l1,2 - Sim."), "asked holds several questions"),
            ("melted", "wav,variable,value", ("naturalness", "similarity"), "variable holds several questions"),
            ("types", "wav,rating_type,rating", ("naturalness", "similarity"), "rating_type holds several questions"),
        ]
    },
    **{
        f"apart-{cell}": (table("clip,rater,rating", "{clip},{who},{score}") + f"c0.wav,l0,{cell}\n", says)
        for cell, says in [
            (
                "9",
                "rating holds 9, all others within 1 to 5: a rating, or not_a_rating = [9] with scale = [1, 5]",
            ),
            ("77", "rating holds 77, all others within 1 to 5"),
            ("-2", "rating holds -2, all others within 1 to 5"),
            ("-88", "rating holds -88, all others within 1 to 5"),
            ("6 - don't know", """1 cells such as '6 - don't know': a rating, or not_a_rating = ["6 - don't know"]"""),
        ]
    },
    **{
        f"next-{'-'.join(cells)}": (
            table("clip,rater,rating", "{clip},{who},{score}")
            + "".join(table("", "d{clip},{who},{score}").lstrip() for _ in range(9))
            + "".join(f"d{n}.wav,l0,{cell}\n" for n, cell in enumerate(cells)),
            says,
        )
        for cells, says in [
            ("6", "rating holds 6, all others within 1 to 5: a rating, or not_a_rating = [6] with scale = [1, 5]?"),
            ("67", "rating holds 6, 7 (2 times), all others within 1 to 5: a rating, or not_a_rating = [6, 7]"),
            (["0.5"], "rating holds 0.5, all others within 1 to 5"),
        ]
    },
    "percent-beside-points": (
        table("clip,rater,rating", "{clip},{who},{score}") + "x.wav,l0,80%\n",
        "rating holds 1 cells in percent beside others",
    ),
    "who-is-no-person": (
        table("clip,rater,rating,is_human", "{clip},{who},{score},true") + "x.wav,l9,3,false\n",
        "is_human tells answers of people from others (false, true)",
    ),
    "apart-in-a-test": (
        table("clip,rater,test,rating", "{clip},{who},p,{score}")
        + table("", "{clip},{who},q,{score}0")
        + "x.wav,l0,p,9\n",
        "rating holds 9, all others within 1 to 5",
    ),
    **{
        f"turned-{form}": (
            "clip,rater,rating\n"
            + "".join(
                f"{clip},l{n % 2},{form.format(number=6 - score, word=words[score - 1])}\n"
                for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
            ),
            f"rating: is a low one good, as '{form.format(number=5, word=words[0])}' says?",
        )
        for form, words in [
            ("{number} - {word}", ("bad", "poor", "fair", "good", "excellent")),
            ("{number} = {word}", ("mangelhaft", "ausreichend", "befriedigend", "gut", "sehr gut")),
            ("{word} ({number})", ("Very annoying", "Annoying", "Slightly", "Not annoying", "Imperceptible")),
            ("{number}: {word}", ("很差", "差", "一般", "良好", "优秀")),
        ]
    },
    **{
        f"measured-{name}": (
            table(f"clip,{name}", "{clip},{score}"),
            "no column is called a rating: columns.mos names the one that is",
        )
        for name in ("gemini_rating", "llm_score", "ai_score", "gpt4_score", "GPT-4o rating", "model_score")
    },
    **{
        f"scale-{name}-{'-'.join(cells)}": (
            f"clip,rater,rating,{name}\n"
            + "".join(
                f"{clip},l{n % 2},{score},{cells[n // 2 % len(cells)]}\n"
                for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
            ),
            says,
        )
        for name, cells, says in [
            ("max_score", ("5", "100"), 'max_score holds several scales ("100", "5")'),
            ("scale", ("1-5", "0-10"), 'scale holds several scales ("0-10", "1-5")'),
            ("scale_max", ("7",), "scale_max says 7, and the ratings seem to be of 1 to 5: write scale"),
            ("rating_scale", ("1 to 7",), "rating_scale says 1 to 7, and the ratings seem to be of 1 to 5"),
        ]
    },
    "comments": (
        table("clip,rater,rating", "{clip},{who},{score}") + "#c0.wav,l0,1\n",
        "1 clips begin with #, such as #c0.wav: remove rows that are comments",
    ),
    "a-hundredth-beside-five": (  # with few fives
        "clip,rating\n"
        + "".join(f"c{n}.wav,{cell}\n" for n, cell in enumerate([1, 2, 3, 4, 3] * 90 + [5] * 20 + [6, 6, 7])),
        "rating holds 6, 7 (3 times), all others within 1 to 5: a rating, or not_a_rating = [6, 7]",
    ),
    "q": (
        "wav,q,rater,score\n" + "".join(f"c{n // 4}.wav,{n % 2},l{n // 2 % 2},{n % 5 + 1}\n" for n in range(24)),
        'q holds several questions ("0", "1")',
    ),
    **{
        f"pages-{form}-{count}-{name}": (
            f"{name},rater,stimulus,rating\n"
            + "".join(
                f"{form.format(page)},l{who},{clip},{(page + who) % 5 + 1}\n"
                for page in range(count)
                for who in range(2)
                for clip in clips
            ),
            f"{name} holds several questions ({listed}): where = {{ {name} = … }} chooses one; if they are items of a "
            f"test, file = '{{{name}}}/{{stimulus}}{ending}' names the clips",
        )
        for name, form, count, clips, ending, listed in [
            ("excerpt", "s{}", 25, ("ref", "sysX"), ".wav", '"s0", "s1", "s10", …'),
            ("trial", "{}", 3, ("ref", "sysX"), ".wav", '"0", "1", "2"'),
            ("page", "{}", 25, ("ref.wav", "sysX.wav"), "", '"0", "1", "10", …'),
        ]
    },
    **{
        f"thousands-{'-'.join(more)}": (
            table("clip,rating", '{clip},"{score},333"') + "".join(f"x{n}.wav,{cell}\n" for n, cell in enumerate(more)),
            "rating holds cells such as '1,333': a decimal comma, or a thousand? Write 2.333, or 2333",
        )
        for more in ([], ["950", "870"])
    },
    "distortion-zh": (table("clip,rater,失真评分", "{clip},{who},{score}"), "失真评分: is a low one good"),
    "some-words": (
        table("clip,rating", "{clip},{score}") + "".join(f"c{n}.wav,skip\n" for n in range(6)),
        "rating is called a rating and 6 cells are no numbers (skip)",
    ),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_what_has_two_readings_is_asked(name: str, tmp_path: Path) -> None:
    content, says = DOUBTED[name]
    (tmp_path / "t.csv").write_text(content)
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)


@pytest.mark.parametrize(
    ("form", "more", "mean"),
    [
        ('"{score},5"', '"2,333"', 2.333),
        ("{score}", '"2,333"', 2.333),
        ("{score}.25", '"2,333"', 2.333),
        ('"{score},250"', '"0,333"', 0.333),  # no thousand begins with 0
    ],
)
def test_three_digits_behind_a_comma_are_decimals_among_ratings_that_say_so(
    form: str, more: str, mean: float, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(table("clip,rating", f"{{clip}},{form}") + f"x.wav,{more}\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert means(tmp_path / "my.toml")["x.wav"] == pytest.approx(mean)


def test_three_digits_behind_a_comma_are_decimals_between_semicolons(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table("clip;rating", "{clip};{score},333").replace("5,333", "4,667"))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert {*means(tmp_path / "my.toml").values()} <= {1.333 + n / 2 for n in range(8)} | {
        4.667,
        *((n + 4.667) / 2 for n in (1.333, 2.333, 3.333, 4.333)),
    }


def test_a_rare_end_of_a_scale_is_asked_about_only_beyond_a_common_one(tmp_path: Path) -> None:
    for count, code in ((1, 1), (30, 0)):
        text = table("clip,rater,rating", "{clip},{who},{score}") + table("", "e{clip},{who},{score}").lstrip() * 9
        (tmp_path / "t.csv").write_text(text + "".join(f"f{n}.wav,l0,6\n" for n in range(count)))
        init(tmp_path / "t.csv", tmp_path / f"{count}.toml", code=code)


def means_and(*others: float, low: float, high: float) -> str:
    """A list of 300 means from `low` to `high`, most in its middle, and others far down."""
    inner = [low + (high - low) * (0.5 + 0.5 * math.sin(n) ** 3) for n in range(300)]
    given = [*inner[:200], *others, *inner[200:]]
    return "\n".join(["clip,mos", *(f"m{n}.wav,{mean}" for n, mean in enumerate(given))]) + "\n"


@pytest.mark.parametrize(
    ("others", "low", "high", "says"),
    [
        ([5.6], 1.2, 4.7, "mos holds 5.6, all others within 1 to 5: a rating, or not_a_rating = [5.6] with scale = "),
        ([5.1, 5.6, 5.1], 1.2, 4.7, "mos holds 5.1, 5.6 (3 times), all others within 1 to 5: a rating"),
        ([5.612345678], 1.2, 4.7, "or not_a_rating = [5.612345678] with"),
        ([0.4], 1.2, 4.7, "mos holds 0.4, all others within 1 to 5"),
        ([1.2], 0.11, 0.97, "mos holds 1.2, all others within 0 to 1"),
        ([10.6], 1.7, 8.7, "mos holds 10.6, all others within 1 to 9"),
        ([10.3], 1.7, 9.7, "mos holds 10.3, all others within 0 to 10"),
        ([100.4], 12, 99.8, "mos holds 100.4, all others within 0 to 100"),
        ([46, 37, 23, 31], 1.2, 4.7, "not_a_rating = [23, 31, 37, 46] with scale = [1, 5]"),
        (
            [*range(11, 31)],
            1.2,
            4.7,
            "mos holds 11, 12, 13, 14, 15, 16, 17, 18, … (20 times), all others within 1 to 5",
        ),
        ([0.1, 0.3], 1.2, 4.7, "mos holds 0.1, 0.3 (2 times), all others within 1 to 5"),
        ([0.2, 5.5], 1.2, 4.7, "mos holds 0.2, 5.5 (2 times), all others within 1 to 5"),
    ],
)
def test_means_beside_the_scale_of_hundreds_are_asked_about(
    others: list[float], low: float, high: float, says: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(means_and(*others, low=low, high=high))
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert says in said
    assert "The first is of 'm200.wav'" in said


@pytest.mark.parametrize(
    ("others", "low", "high"),
    [
        ([5.6] * 7, 1.2, 4.7),  # more than one in fifty
        ([9.6], 1.2, 8.8),  # of 0 to 10, seldom used to its ends
        ([0.4], 1.2, 9.8),
        ([], 1.2, 6.7),
    ],
)
def test_means_all_over_a_scale_are_not_asked_about(
    others: list[float], low: float, high: float, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(means_and(*others, low=low, high=high))
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize(("header", "top"), [("rating", 9), ("rating", 100), ("rating (1-9)", 5)])
def test_ratings_all_over_a_scale_are_not_asked_about(header: str, top: int, tmp_path: Path) -> None:
    rows = [f"c{n % 40}.wav,{1 + 7 * n % top}" for n in range(100)] + ["c1.wav,9"]
    (tmp_path / "t.csv").write_text("\n".join([f"clip,{header}", *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("header", ["wav,item,rater,score", "wav,type,rater,score", "wav,phase,rater,score"])
def test_numbers_of_a_clip_or_a_turn_are_no_questions(header: str, tmp_path: Path) -> None:
    turns = "phase" in header  # the same clip is heard again; a number without such a name is no question
    rows = [f"c{n % 6}.wav,{n // 12 if turns else n % 6 % 3},l{n % 12 // 6},{n % 5 + 1}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("header", ["wav,trial,rater,score", "wav,take,rater,score"])
def test_the_order_of_trials_and_repetitions_are_no_pages(header: str, tmp_path: Path) -> None:
    takes = "take" in header  # each clip in each
    rows = [f"c{n % 6}.wav,{n // 12 if takes else n // 2},l{n // 6 % 2},{n % 5 + 1}" for n in range(48)]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


NO_RATINGS = (
    "評価者,评分人ID,打分员,평가자,rated_by,rating_by,overall_length,score_round,clap_score,DNSMOS OVRL,nisqa_mos"
)


@pytest.mark.parametrize("name", [*NO_RATINGS.split(","), "rating_confidence", "quality_kbps"])
def test_names_of_raters_measures_and_circumstances_are_no_ratings(name: str, tmp_path: Path) -> None:
    assert not read_name(name).rates
    (tmp_path / "t.csv").write_text(table(f"clip,{name},MI", "{clip},{n}.5,{score}"))
    assert "mos" not in guess_table(tmp_path / "t.csv").columns


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("Quality (1-7)", (1, 7)),
        ("quality 0 to 10", (0, 10)),
        ("Score 1–3", (1, 5)),
        *((name, (1, 5)) for name in ("MOS Q1-7", "MOS exp0-100", "MOS 2019-0-10", "MOS (v1.0-9)")),
    ],
)
def test_the_scale_that_a_name_states_is_taken_if_the_ratings_fit(
    name: str, scale: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(table(f"clip,{name}", "{clip},{score}"))
    assert guess_table(tmp_path / "t.csv").scale == scale


@pytest.mark.parametrize("name", ["Quality (0-5)", "quality 0-5"])
def test_a_zero_within_the_scale_that_a_name_states_is_a_rating(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table(f"clip,{name}", "{clip},{score}").replace(",2\n", ",0\n"))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    frame = pd.DataFrame({"clip": CLIPS, "score": [0 if score == 2 else score for score in SCORES]})
    assert means(tmp_path / "my.toml") == pytest.approx(frame.groupby("clip")["score"].mean().to_dict())


@pytest.mark.parametrize("name", ["How good is the quality?", "Rating by ear", "quality_set1"])
def test_plain_questions_are_ratings(name: str) -> None:
    assert read_name(name).rates


def test_work_that_was_rejected_is_left_out(tmp_path: Path) -> None:
    header = "WorkerId,AssignmentStatus,Input.url,Answer.rating"
    (tmp_path / "t.csv").write_text(table(header, "w{n},Approved,{clip},{score}") + "w,Rejected,c0.wav,1\n")
    assert "work that was not rejected" in told(tmp_path / "t.csv", tmp_path / "my.toml")
    rejects = [(row.reason, row.line) for row in read(tmp_path / "my.toml") if isinstance(row, Reject)]
    assert rejects == [("not_selected", 26)]


def test_data_sets_in_one_list_have_their_own_scales(tmp_path: Path) -> None:
    rows = table("clip,dataset,score", "{clip},old,{score}") + table("x.wav,new,50", "n{clip},new,{score}0")
    (tmp_path / "t.csv").write_text(rows)
    assert guess_table(tmp_path / "t.csv").scale == {"old": (1, 5), "new": (0, 100)}


@pytest.mark.parametrize("line", ["sep=;\n", '"sep=;"\r\n', "SEP=;\r\n"])
def test_the_delimiter_of_excels_first_line_holds(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes((line + table("clip;rater;rating", "{clip};{who};{score},0")).encode())
    assert "delimiter: semicolon; header: the first row" in told(tmp_path / "t.csv", tmp_path / "my.toml")
    expected = pd.DataFrame({"clip": CLIPS, "score": SCORES}).groupby("clip")["score"].mean().to_dict()
    assert means(tmp_path / "my.toml") == pytest.approx(expected)
    text = (tmp_path / "my.toml").read_text().replace('delimiter = ";"\n', "")  # as a person writes it
    (tmp_path / "my.toml").write_text(text)
    assert means(tmp_path / "my.toml") == pytest.approx(expected)


def test_keys_within_keys_and_structs_are_columns(tmp_path: Path) -> None:
    rows = [
        {"audio": {"path": clip, "bytes": b""}, "vote": {"rater": {"id": f"l{n % 2}"}, "score": score}}
        for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    lines = [json.dumps({**row, "audio": {"path": row["audio"]["path"]}}) for row in rows]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n[]\n")
    expected = pd.DataFrame({"clip": CLIPS, "score": SCORES}).groupby("clip")["score"].mean().to_dict()
    for name in ("t.parquet", "t.jsonl"):
        init(tmp_path / name, tmp_path / "my.toml", force=True)
        assert means(tmp_path / "my.toml") == pytest.approx(expected)
        columns = {"file": "audio.path", "mos": "vote.score"}
        assert columns.items() <= read_toml(tmp_path / "my.toml")["sources"][0]["columns"].items()
    assert [(row.reason, row.line) for row in read(tmp_path / "my.toml") if isinstance(row, Reject)] == [
        ("bad_line", 25)
    ]


def test_objects_in_a_list_are_rows_of_their_line(tmp_path: Path) -> None:
    said = [[{"annotator": f"l{k}", "score": SCORES[2 * n + k]} for k in (0, 1)] for n in range(12)]
    lines = [json.dumps({"clip": f"c{n}.wav", "given": given}) for n, given in enumerate(said)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    init(tmp_path / "t.jsonl", tmp_path / "my.toml")
    rows = [row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]
    assert [row.score for row in rows] == SCORES
    assert [(row.listener_id, row.line) for row in rows[:3]] == [("l0", 1), ("l1", 1), ("l0", 2)]


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_a_list_of_objects_beside_a_rating_does_not_repeat_it(ending: str, tmp_path: Path) -> None:
    rows = [
        {
            "audio": {"path": clip},
            "rater": f"l{n % 2}",
            "score": score,
            "segments": [{"start": at} for at in range(n % 3)],
        }
        for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
    ]
    text = json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows))
    (tmp_path / f"t.{ending}").write_text(text)
    init(tmp_path / f"t.{ending}", tmp_path / "my.toml")
    assert [row.score for row in read(tmp_path / "my.toml") if isinstance(row, Rating)] == SCORES


def test_letters_of_another_encoding_below_the_first_line_are_said(tmp_path: Path) -> None:
    for header, is_damaged in (("clip,rater,rating,remark", False), ("clip,Hörer,rating,remark", True)):
        content = table(header, "{clip},{who},{score},").encode() + "c0.wav,l0,1,schön\n".encode("latin-1")
        (tmp_path / "t.csv").write_bytes(content)
        if is_damaged:  # the letters of other lines are UTF-8
            assert guess_table(tmp_path / "t.csv").rows == len(CLIPS)
        else:
            assert "line 26: expected UTF-8" in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)


def test_clips_of_systems_above_their_ratings_stay_apart(tmp_path: Path) -> None:
    names = [f"{system}/u{n}.wav" for system in ("s1", "s2") for n in (1, 2)]
    header = ",".join(["Participant", *(f"How good is {name}?" for name in names)])
    (tmp_path / "t.csv").write_text(f"{header}\nl1,1,2,3,4\nl2,2,2,4,4\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert means(tmp_path / "my.toml") == dict(zip(names, [1.5, 2, 3.5, 4], strict=True))


@pytest.mark.parametrize("column", ["scale_max", "quality_id", "max_votes", "min_bitrate", "scale"])
def test_a_column_that_tells_the_scale_of_the_guess_or_something_else_is_not_asked_about(
    column: str, tmp_path: Path
) -> None:
    cell = "1-5" if column == "scale" else "5"
    (tmp_path / "t.csv").write_text(table(f"clip,rater,rating,{column}", f"{{clip}},{{who}},{{score}},{cell}"))
    init(tmp_path / "t.csv", tmp_path / "my.toml", code=0)


def test_a_number_out_of_binary_is_the_end_of_its_scale(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table("clip,rater,rating", "{clip},{who},{score}.0000001"))
    init(tmp_path / "t.csv", tmp_path / "my.toml", code=0)
    scores = [row.score for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]
    assert (len(scores), max(scores)) == (24, 5)
