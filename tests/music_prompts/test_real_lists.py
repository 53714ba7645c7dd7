"""Prompt sets from MTG-Jamendo's real list: every rule of the pool and of the draw, recomputed by a second way.

The reviewed lists (`tasks/text/words/*.tsv`) are data here as there; nothing of the code that reads them is used.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.tracks import Tag
from earmark.tasks.text.tag_words import runs_together
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.music_prompts.prompt_builds import build_prompts, config_of
from tests.music_prompts.test_music_prompts import assert_prompts_hold, assert_strata_hold, tags_in

Named = tuple[str, str]
BETWEEN = r"(?:[^\w,.;:!?()\n]|_)+"


@cache
def listed(name: str) -> dict[Named, str]:
    """A reviewed list: what it says of a tag, by category and name."""
    with (ROOT / f"tasks/text/words/{name}.tsv").open(encoding="utf-8", newline="") as stream:
        return {
            (kind, tag): rest for kind, tag, rest in [*csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
        }


@cache
def single_words() -> str:
    """An expression for any form that is one word."""
    forms = {form.strip().lower() for cell in listed("forms").values() for form in cell.split("|")}
    return "|".join(
        sorted((re.escape(form) for form in forms if re.fullmatch(r"[^\W_]+", form)), key=len, reverse=True)
    )


def is_unnatural(tag: Named) -> bool:
    """Whether a tag is in no list, is not made of listed words alone, and begins or ends in one of them."""
    name, word = tag[1], single_words()
    made = re.fullmatch(f"(?:{word})|(?:(?=\\w{{3}})(?:{word_of_three()}))+", name)
    begins = any(re.fullmatch(word, name[:at]) for at in range(3, len(name) - 2))
    ends = any(re.fullmatch(word, name[at:]) for at in range(3, len(name) - 2))
    return tag not in listed("forms") and not made and (begins or ends)


@cache
def word_of_three() -> str:
    """The listed words of three letters or more, of which longer names are made."""
    return "|".join(word for word in single_words().split("|") if len(word) >= 3)


def spoken(tag: Named) -> list[str]:
    """A tag's forms as expressions: those of the list and the name as it stands; of instruments the plural, too."""
    found = []
    for form in (*listed("forms").get(tag, "").split("|"), tag[1]):
        words = re.findall(r"[^\W_]+|[,.;:!?()]", form.lower().replace("&", " and "))
        if not words:
            continue
        plural = ""
        if tag[0] == "instrument" and (words[-1][-2:] == "ss" or words[-1][-1] != "s"):
            plural = "(?:es)?" if re.search("(x|ch|sh|ss)$", words[-1]) else "s?"
        found.append(BETWEEN.join(map(re.escape, words)) + plural)
    return found


def mentions_of(tags: set[Named], texts: list[str]) -> Counter[Named]:
    """In how many texts each tag is named, with one expression for each form: the longest at a place counts."""
    forms = sorted({form for tag in tags for form in spoken(tag)}, key=lambda form: -form.count(BETWEEN))
    any_form = re.compile(rf"(?<![^\W_])(?:{'|'.join(forms)})(?![^\W_])")
    alone = {tag: re.compile("|".join(spoken(tag))) for tag in tags}
    counted: Counter[Named] = Counter()
    for text in texts:
        places = {found[0] for found in any_form.finditer(text.lower().replace("&", " and "))}
        counted.update(tag for tag, form in alone.items() if any(form.fullmatch(place) for place in places))
    return counted


def test_a_second_way_finds_the_same_names_run_together() -> None:
    names = [name for _, name in listed("forms")]
    made = [*names, *(f"{name}grass" for name in names), *(f"{a}{b}" for a, b in zip(names, names[7:], strict=False))]
    made += [*(f"qu{name}" for name in names), *(name[1:] for name in names), *(name[:-1] for name in names)]
    kinds = [("genre", name) for name in made if name]
    by_code = [runs_together(Tag(*tag)) for tag in kinds]
    assert 300 < sum(by_code) < len(by_code) - 300
    assert [tag for tag, code in zip(kinds, by_code, strict=True) if is_unnatural(tag) != code] == []


@pytest.mark.slow
@pytest.mark.parametrize("mentions", [0, 4])
def test_every_rule_holds_on_the_real_list(real: Path, tmp_path: Path, mentions: int) -> None:
    """One genre has a name that nobody writes, so that no rule is without a case."""
    content = (real / "mtg-jamendo/autotagging.tsv").read_text("utf-8")
    path = tmp_path / "tracks.tsv"
    path.write_text(re.sub(r"\bgenre---indie\b", "genre---dubgrass", content), "utf-8")
    tracks = tags_in(path)
    counted = Counter(tag for tags in tracks for tag in tags)
    files = {name: ROOT / f"data/demo/tags/{name}" for name in ("direct.json", "refined.tsv")}
    direct = [one["caption"] for one in json.loads(files["direct.json"].read_bytes())]
    refined = [line.partition("\t")[2] for line in files["refined.tsv"].read_text("utf-8").splitlines()]
    named = mentions_of({*counted}, [*direct, *refined])
    recalls = {tag: (50, 30 + at * 11 % 21) for at, tag in enumerate(sorted(counted)) if at % 17}
    lines = [f"{kind},{name},{asked},{heard}" for (kind, name), (asked, heard) in recalls.items()]
    (tmp_path / "recalls.csv").write_text("\n".join(["category,tag,asked,detected", *lines]) + "\n")
    sets = [{"name": name.partition(".")[0], "file": str(file)} for name, file in files.items()]
    pool = {"popularity": 400, "mentions": mentions, "recall": 0.7}
    values = {"tracks": str(path), "captions": sets, "recalls": "recalls.csv", "pool": pool, "prompts": {}}
    version = build_prompts(config_of(tmp_path, **values), tmp_path / "store")

    def missed(tag: Named) -> str | None:
        asked, heard = recalls.get(tag, (0, 0))
        rules = {
            "unpopular": counted[tag] < 400,
            "vocal": tag in listed("vocal"),
            "rarely_mentioned": named[tag] < mentions,
            "not_verified": not asked,
            "low_recall": heard < 0.7 * asked,
        }
        return next((name for name, broken in rules.items() if broken), None)

    tags = {(row["category"], row["tag"]): row for row in rows_of(version, "tags")}
    assert {tag: (row["tracks"], row["mentions"]) for tag, row in tags.items()} == {
        tag: (counted[tag], named[tag]) for tag in counted
    }
    fates = {tag: missed(tag) for tag in counted}
    assert {tag: row["criterion"] for tag, row in tags.items()} == fates
    assert {*fates.values()} >= {"unpopular", "vocal", "not_verified", "low_recall", None}
    assert ("rarely_mentioned" in fates.values()) == (mentions > 0)
    rejects = rows_of(version, "rejects")
    dropped = Counter(row["item"] for row in rejects if row["stage"] == "tags")
    assert dropped == Counter("---".join(tag) for tag, fate in fates.items() if fate)

    triplets = rows_of(version, "triplets")
    assert Counter(row["stratum"] for row in triplets) == {"strict_id": 40, "improvised_id": 40, "strict_ood": 20}
    used = {(kind, row[kind.replace("/", "_")]) for row in triplets for kind in ("genre", "instrument", "mood/theme")}
    unnatural = {tag for tag, fate in fates.items() if fate is None and not named[tag] and is_unnatural(tag)}
    assert used <= {tag for tag, fate in fates.items() if fate is None} - unnatural
    refused = [row for row in rejects if row["reason"] == "unnatural_words"]
    assert (unnatural, bool(refused)) == (({("genre", "dubgrass")}, True) if not mentions else (set(), False))
    assert all("dubgrass" in row["item"] for row in refused)
    assert_strata_hold(version, tracks)
    assert_prompts_hold(version, tracks)
    assert_shots_hold(version, {"direct": direct, "refined": refined})


def assert_shots_hold(version: Any, captions: dict[str, list[str]]) -> None:
    """Five captions of each set for each prompt, none twice, in the words of the files."""
    shown: dict[str, list[dict[str, Any]]] = {row["prompt_id"]: [] for row in rows_of(version, "prompts")}
    for row in rows_of(version, "shots"):
        shown[row["prompt_id"]].append(row)
        assert row["text"] in captions[row["pipeline"]]
    for rows in shown.values():
        assert Counter(row["pipeline"] for row in rows) == {"direct": 5, "refined": 5}
        assert len({(row["pipeline"], row["item"]) for row in rows}) == 10
