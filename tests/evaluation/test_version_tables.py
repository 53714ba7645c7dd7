"""Tables of a version's own rows: the papers' printed cells from their figures, and counts by pandas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.toml import read_toml
from earmark.tasks.evaluation.layouts import SHIPPED
from earmark.tasks.evaluation.version_tables import tabulate_version, version_layouts, version_page
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.builds import rows_of
from tests.evaluation.test_paper_tables import written
from tests.evaluation.test_score_files import human, pseudo
from tests.human_preferences.votes import SALT

Row = dict[str, Any]


def table_of(version: Version, folder: Path, name: str) -> tuple[list[str], list[list[str | None]]]:
    """The headings and cells of a table."""
    facts, _ = tabulate_version(version, find_corpus(version.corpus), Store(folder / "store"), name, folder / "out")
    return facts["columns"], facts["rows"]


def test_agreement_and_both_dimensions_are_printed_as_tables_6_and_7(tmp_path: Path) -> None:
    agreement = [
        {"scope": scope, "value": scope, "dimension": dimension, "vote_pairs": 644, "agree": agree - less}
        | {"comparisons": 492, "votes": 1056, "rate": agree / 644, "alpha": alpha}
        for scope, less in (("all", 0), ("source", 7))
        for dimension, agree, alpha in (("alignment", 445, 0.382), ("musicality", 466, 0.447), ("overall", 9, None))
    ]
    sure = {"same": (3.674, 3.734), "different": (3.171, 3.311)}
    dimensions = [
        {"source": source, "preferred": preferred, "votes": votes, "share": votes / 4027}
        | {"confidence_alignment": sure[preferred][0], "confidence_musicality": sure[preferred][1]}
        for source in ("all", "cmi")
        for preferred, votes in (("same", 3309), ("different", 718))
    ]
    version = written(tmp_path, "human-preferences", agreement=agreement, dimensions=dimensions)
    assert table_of(version, tmp_path, "cmi-rewardbench-6") == (
        ["Metric", "Instruction Following", "Music Quality"],
        [
            *(["Agreement Count", "445", "466"], ["Disagreement Count", "199", "178"]),
            *(["Agreement Rate", "0.691", "0.724"], ["Krippendorff's α", "0.382", "0.447"]),
        ],
    )
    assert table_of(version, tmp_path, "cmi-rewardbench-7") == (
        ["Metric", "Value"],
        [
            *(["#Votes with same preference", "3,309"], ["#Votes with different preference", "718"]),
            ["Agreement rate", "0.822"],
            ["Avg. confidence (same Pref.)", "IF: 3.674, MQ: 3.734"],
            ["Avg. confidence (diff. Pref.)", "IF: 3.171, MQ: 3.311"],
        ],
    )


def test_a_dimension_without_confidence_has_empty_cells_in_figure_4(tmp_path: Path) -> None:
    votes = [{"vote_id": str(at), "confidence_musicality": sure} for at, sure in enumerate((1.0, 3.0, 3.0))]
    version = written(tmp_path, "human-preferences", votes=votes)
    _, rows = table_of(version, tmp_path, "cmi-rewardbench-figure-4")
    assert rows == [
        ["1", "0", None, "1", "33.33"],
        ["3", "0", None, "2", "66.67"],
        ["Mean", None, "", "2.333", ""],
    ]


def test_position_bias_is_printed_as_table_8(tmp_path: Path) -> None:
    shares = {
        "musicality": {"original": (51.96, 40.96, 7.08), "reversed": (59.27, 33.48, 7.25),
                       "agreed": (57.8, 36.97, 5.22)},
        "alignment": {"original": (33.65, 43.71, 22.64), "reversed": (38.75, 38.84, 22.77),
                      "agreed": (36.05, 41.23, 22.73)},
    }  # fmt: skip
    bias = [
        {"scope": scope, "value": "all", "dimension": dimension, "set": name, "pairs": 9}
        | {f"share_{side}": share / 100 for side, share in zip(("a", "b", "tie"), of, strict=True)}
        for scope in ("all", "judge")
        for dimension, sets in shares.items()
        for name, of in {**sets, "jury": (1.0, 2.0, 97.0)}.items()
    ]
    version = written(tmp_path, "pseudo-preferences", bias=bias)
    columns, rows = table_of(version, tmp_path, "cmi-rewardbench-8")
    assert columns == ["Configuration", "Win A (%)", "Win B (%)", "Tie (%)"]
    names = {"original": "Original (A, B)", "reversed": "Reversed (B, A)", "agreed": "Agreed (Filtered)"}
    assert rows == [
        line
        for dimension, sets in shares.items()
        for line in ([dimension.capitalize(), "", "", ""], *([names[one], *(f"{x:.2f}" for x in of)]
                                                            for one, of in sets.items()))
    ]  # fmt: skip


def test_pairs_are_printed_as_table_1_of_mos_rmbench(tmp_path: Path) -> None:
    """A hundredth of the paper's pairs."""
    counts = {"BVCC": (99, 21, 10), "NISQA": (116, 28, 22), "SingMOS": (100, 27, 10), "SOMOS": (138, 23, 10),
              "TMHINT-QI": (100, 0, 10), "VMC'23": (0, 0, 30)}  # fmt: skip
    pairs = [
        {"pair_id": f"{name}{split}{at}", "dataset": name, "split": split}
        for name, of in counts.items()
        for split, count in zip(("train", "validation", "ood" if name == "VMC'23" else "test"), of, strict=True)
        for at in range(count)
    ]
    version = written(tmp_path, "mos-preferences", pairs=pairs)
    columns, rows = table_of(version, tmp_path, "mos-rmbench-1")
    assert columns == ["Dataset", "Train", "Dev", "Test"]
    overall = ["Overall", *(str(sum(of[at] for of in counts.values())) for at in range(3))]
    assert rows == [*([name, *(str(one) if one else None for one in of)] for name, of in counts.items()), overall]
    (tabled,) = version_page(json.loads((tmp_path / "out/version-table.json").read_bytes())).tables
    assert "| VMC'23 | – | – | 30 |" in tabled.markdown()
    assert r"\begin{tabular}{lrrr}" in tabled.latex()


def numbers(rows: Sequence[Sequence[str | None]], at: int) -> list[float]:
    return [float((row[at] or "").replace(",", "")) for row in rows]


def test_mos_and_gaps_fall_into_the_bins_of_numpy(tmp_path: Path) -> None:
    source = np.random.default_rng(3)
    ratings = [
        {
            "sample_id": f"{dataset}{at}",
            "mos": float(low + (high - low) * step / 32),
            "scale_min": low,
            "scale_max": high,
        }
        for dataset, low, high in (("a", 1.0, 5.0), ("b", 0.0, 100.0))
        for at, step in enumerate([*source.integers(0, 33, 60), 0, 32])
    ]
    mos = {row["sample_id"]: row["mos"] for row in ratings}
    pairs = []
    for at in range(800):
        both = [f"{'ab'[at % 2]}{number}" for number in source.choice(62, 2, replace=False)]
        rejected, chosen = sorted(both, key=mos.__getitem__)
        row = {"pair_id": str(at), "dataset": "ab"[at % 2], "split": ["train", "test", "ood"][at % 3]}
        pairs.append({**row, "chosen_id": chosen, "rejected_id": rejected, "mos_gap": mos[chosen] - mos[rejected]})
    version = written(tmp_path, "mos-preferences", ratings=ratings, pairs=pairs)
    frame, rated = pd.DataFrame(pairs), pd.DataFrame(ratings).set_index("sample_id")
    scale = 1 + 4 * (rated["mos"] - rated["scale_min"]) / (rated["scale_max"] - rated["scale_min"])
    edges = np.linspace(1, 5, 17)
    columns, rows = table_of(version, tmp_path, "mos-rmbench-figure-2")
    assert columns == ["MOS", "Chosen", "Chosen (%)", "Rejected", "Rejected (%)"]
    assert [row[0] for row in rows] == [f"{low:.2f} to {low + 0.25:.2f}" for low in edges[:-1]]
    for at, side in ((1, "chosen"), (3, "rejected")):
        counts = np.histogram(scale[frame[f"{side}_id"]], edges)[0]
        assert numbers(rows, at) == counts.tolist()
        assert numbers(rows, at + 1) == pytest.approx(100 * counts / 800, abs=0.0051)
    tested = frame[frame["split"] != "train"]
    gaps = scale[tested["chosen_id"]].to_numpy() - scale[tested["rejected_id"]].to_numpy()
    columns, rows = table_of(version, tmp_path, "mos-rmbench-figure-2c")
    assert columns == ["ΔMOS", "Pairs", "Pairs (%)"]
    assert numbers(rows, 1) == np.histogram(gaps, np.linspace(0, 4, 17))[0].tolist()


@pytest.mark.slow
def test_the_sets_of_a_built_version_are_counted_as_pandas_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    version = human(tmp_path / "store")
    tables = {name: pd.DataFrame(rows_of(version, name))
              for name in ("votes", "comparisons", "ratings", "clips", "benchmark")}  # fmt: skip
    columns, rows = table_of(version, tmp_path, "cmi-rewardbench-1")
    assert columns == ["Data set", "PAM", "MusicEval", "Music Arena", "CMI-Pref"]
    cells = {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}
    lengths = tables["clips"].set_index("clip_id")["duration_s"]
    counted = 0
    for heading, task in zip(columns[1:], ("pam", "musiceval", "music-arena", "cmi-pref"), strict=True):
        compared, rated, tested = (
            tables[name][tables[name]["task"] == task] for name in ("comparisons", "ratings", "benchmark")
        )
        cast = tables["votes"][tables["votes"]["comparison_id"].isin(compared["comparison_id"])]
        clips = {*compared["clip_a"], *compared["clip_b"], *rated["clip_id"]}
        if not clips:
            assert {one[heading] for one in cells.values()} == {None}
            continue
        counted += 1
        models = {*compared["model_a"], *compared["model_b"], *cast["model_a"], *cast["model_b"], *rated["system"]}
        samples = tested["vote_id"].fillna(tested["comparison_id"]).fillna(tested["clip_a"]).nunique()
        hours, references = (
            None if lengths[[*held]].isna().any() or not held else f"{lengths[[*held]].sum() / 3600:.2f}"
            for held in (clips, {*compared["reference_clip"].dropna()})
        )
        expected = {
            "#Samples": f"{len(cast) + rated['clip_id'].nunique():,}",
            "#Testing samples": f"{samples:,}" if samples else None,
            "#Duration of audio (hours)": hours,
            "#Duration of reference audio (hours)": references,
            "#Unique prompts": f"{pd.concat([compared['prompt_id'], rated['prompt_id']]).nunique():,}",
            "#Models & APIs": f"{len({one for one in models if isinstance(one, str)}):,}",
            "Lyrics condition": "yes" if compared["lyrics"].fillna("").ne("").any() else "no",
            "Audio condition": "yes" if compared["reference_clip"].notna().any() else "no",
        }
        assert {name: cells[name][heading] for name in expected} == expected
    assert counted > 2
    _, rows = table_of(version, tmp_path, "cmi-rewardbench-figure-4")
    votes = tables["votes"]
    for at, name in ((1, "confidence_alignment"), (3, "confidence_musicality")):
        counts = votes[name].value_counts()
        assert {float(row[0] or 0): float((row[at] or "").replace(",", "")) for row in rows[:-1]} == pytest.approx(
            {level: counts.get(level, 0) for level in map(float, (row[0] or 0 for row in rows[:-1]))}
        )
        assert float(rows[-1][at] or 0) == pytest.approx(votes[name].mean(), abs=0.0005)
        assert sum(numbers(rows[:-1], at + 1)) == pytest.approx(100, abs=0.05)


@pytest.mark.slow
def test_pseudo_labels_of_a_built_version_are_counted_as_pandas_does(tmp_path: Path) -> None:
    version = pseudo(tmp_path / "store")
    labels, clips = (pd.DataFrame(rows_of(version, name)) for name in ("labels", "clips"))
    columns, rows = table_of(version, tmp_path, "cmi-rewardbench-1-pseudo")
    assert columns == ["Data set", "CMI-Pref-Pseudo"]
    found = {str(name): value for name, value in rows}
    both = labels.dropna(subset=["musicality", "alignment"])
    assert (found["#Samples"], found["#Models & APIs"]) == (str(len(both)), str(clips["model"].nunique()))
    assert found["#Unique prompts"] == str(clips["prompt_id"].nunique())
    assert found["#Duration of audio (hours)"] == f"{clips['duration_s'].sum() / 3600:.2f}"
    _, rows = table_of(version, tmp_path, "cmi-rewardbench-8")
    assert [row[0] for row in rows[:2]] == ["Musicality", "Original (A, B)"]


def test_every_query_has_a_layout_of_a_corpus() -> None:
    assert {*version_layouts()} == {path.stem for path in SHIPPED.glob("*.sql")}
    assert all(path.is_file() for path in version_layouts().values())


def test_what_a_version_has_nothing_for_is_one_line(tmp_path: Path) -> None:
    """Rows that no table counts: a vote without confidence, and a pair of the training split."""
    one = {"pair_id": "p", "split": "train", "dataset": "a", "mos_gap": 1.0, "chosen_id": "x", "rejected_id": "y"}
    empty = {
        "human-preferences": written(tmp_path, "human-preferences", votes=[{"vote_id": "v", "musicality": "a"}]),
        "pseudo-preferences": written(tmp_path, "pseudo-preferences", labels=[{"pair_id": "p", "musicality": "a"}]),
        "mos-preferences": written(tmp_path, "mos-preferences", pairs=[one]),
    }
    for name, path in version_layouts().items():
        version = empty[read_toml(path)["corpus"]]
        if name == "mos-rmbench-1":
            assert table_of(version, tmp_path, name)[1] == [["a", "1", None, None], ["Overall", "1", None, None]]
            continue
        with pytest.raises(StoreError, match=r"' counts .*; .*@v1 has none of them"):
            table_of(version, tmp_path, name)
    with pytest.raises(StoreError, match="is a table of pseudo-preferences; this is a version of mos-preferences"):
        table_of(empty["mos-preferences"], tmp_path, "cmi-rewardbench-8")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--table", "cmi-rewardbench-6"), "of a version's own rows: leave --layout"),
        (("--table", "cmi-rewardbench-11"), "name the models of the table"),
    ],
)
def test_files_have_tables_of_models_alone(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    place = ("--layout", "cmi-rewardbench", "--store", str(tmp_path / "store"))
    done = CliRunner().invoke(app, ["eval", "tables", "all_test.jsonl", *place, *options])
    assert isinstance(done.exception, ConfigError), done.output
    assert says in str(done.exception)
