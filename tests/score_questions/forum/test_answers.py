"""What counts as an answer: people's words, not removals, notices, bots, askers, bare links; and whose votes decide."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from earmark.tasks.score_questions.forum.pictures import (
    difference_hash,
    is_same_picture,
    near_duplicates,
    read_picture,
)
from earmark.tasks.score_questions.requests import best_of
from earmark.tasks.text.languages import language_of
from tests.score_questions.forum.test_threads import answers, read
from tests.score_questions.forum.threads_of import SALT, comment, submission, write_dump

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


NO_ANSWERS: list[tuple[str, Row]] = [
    ("removed", {"body": "[ Removed by Reddit ]"}),
    ("removed", {"body": "[ Removed by reddit in response to a copyright notice."}),
    ("removed", {"body": " [removed by moderator] "}),
    ("removed", {"body": "[deleted by user]"}),
    ("removed", {"_meta": {"was_deleted_later": True, "removal_type": "deleted"}}),
    ("removed", {"body": "\\[removed\\]"}),
    ("removed", {"body": "*[removed]*"}),
    ("removed", {"body": "Comment removed by moderator"}),
    ("removed", {"body": "Removed per Rule 2"}),
    ("removed", {"body": "*Permanently Deleted*"}),
    ("removed", {"body": "deleted"}),
    ("removed", {"body": "[unavailable]"}),
    ("removed", {"body": "This comment has been overwritten by Power Delete Suite v1.4.8"}),
    ("removed", {"body": "This post was mass deleted and anonymized with [Redact](https://redact.dev)"}),
    ("removed", {"body": "[This comment has been deleted in protest of the API changes]"}),
    ("removed", {"body": "It is V7.", "removal_reason": "legal"}),
    ("removed", {"body": "It is V7.", "removed_by_category": "moderator"}),
    ("removed", {"body": "It is V7.", "banned_by": "a_moderator"}),
    ("automatic", {"body": "Please read the rules.", "author": "automoderator"}),
    ("automatic", {"body": "Here is a preview of the top posts.", "author": "sneakpeekbot"}),
    ("automatic", {"body": "Please read the rules.", "stickied": True}),
    ("automatic", {"body": "Please read the rules.", "distinguished": "moderator"}),
    ("automatic", {"body": "^(I am a bot, and this action was performed automatically.)"}),
    ("automatic", {"body": "Beep boop! A reminder.", "author": "someone"}),
    ("automatic", {"body": "The chord is V7.", "author": "ChordNamerBot"}),
    ("automatic", {"body": "The chord is V7.", "author_flair_text": "Bot"}),
    ("not_an_answer", {"body": "Thanks, that helps!", "is_submitter": True}),
    ("not_an_answer", {"body": "Thanks, that helps!", "author": "asker_1"}),
    ("not_an_answer", {"body": "RemindMe! 2 days"}),
    ("not_an_answer", {"body": "!remindme 1 week\n"}),
    ("not_an_answer", {"body": 'Remind me! tomorrow "that chord"'}),
    ("not_an_answer", {"body": "u/RemindMeBot 3 days"}),
    ("not_an_answer", {"body": "[link]"}),
    ("not_an_answer", {"body": "![gif](giphy|abc123)"}),
    ("not_an_answer", {"body": "https://i.redd.it/abc.png"}),
    ("not_an_answer", {"body": '![img](xyz123 "notes")\n\nhttps://example.org/a?b=c'}),
]
ANSWERS: list[Row] = [
    {"body": "[Here](https://example.org/x) is how it sounds"},
    {"body": "Bb7"},
    {
        "body": "Remind me of the key: then it is a V7!",
        "removal_reason": None,
        "removed_by_category": "",
        "banned_by": None,
    },
    {"body": "RemindMe! 2 days\nIt is V7, by the way."},
    {"body": "I removed the third [and deleted the fifth]."},
    {"body": "Removed by a fifth from the tonic."},
    {"body": "Deleted notes give it away: the fifth is left out."},
    {"body": "This comment was helpful, but the third is removed."},
    {"body": "Talbot says so.", "author": "talbot"},
    {"body": "It is a robotic rhythm, I am about sure.", "distinguished": None, "stickied": False},
    {"body": "It is V7.", "author": "[deleted]", "is_submitter": False},
    {"body": "It is V7.", "banned_by": False},
    {"_meta": {"was_initially_deleted": True, "removal_type": "deleted"}},  # and restored since
    {"_meta": [True]},
]


def comments_beside(folder: Path, changes: list[Row]) -> tuple[dict[str, Any], list[Row], list[Row]]:
    """Read threads of one asker, each with three answers and one of the comments as its fourth."""
    threads = range(1, len(changes) + 1)
    write_dump(folder / "RS.ndjson", [submission(thread, author="asker_1") for thread in threads])
    fourth = [comment(9000 + thread, thread, **{"score": 99, **changes[thread - 1]}) for thread in threads]
    write_dump(folder / "RC.ndjson", [*fourth, *answers(*threads)])
    steps, _, comments, rejects = read(folder)
    return steps, comments, rejects


def test_a_comment_that_answers_nothing_neither_counts_nor_wins(tmp_path: Path) -> None:
    steps, comments, rejects = comments_beside(tmp_path, [changes for _, changes in NO_ANSWERS])
    found = {row["line"]: row["reason"] for row in rejects}
    assert [(found.get(line), changes) for line, (_, changes) in enumerate(NO_ANSWERS, 1)] == NO_ANSWERS
    assert steps["comments"].rejected == Counter(reason for reason, _ in NO_ANSWERS)
    assert Counter(Counter(row["thread_key"] for row in comments).values()) == {3: len(NO_ANSWERS)}


def test_a_comment_near_these_is_an_answer(tmp_path: Path) -> None:
    steps, comments, rejects = comments_beside(tmp_path, ANSWERS)
    assert [ANSWERS[row["line"] - 1] for row in rejects] == []
    assert steps["comments"].rejected == {}
    assert Counter(Counter(row["thread_key"] for row in comments).values()) == {4: len(ANSWERS)}


def test_a_submission_that_was_removed_is_dropped(tmp_path: Path) -> None:
    gone: list[Row] = [
        {"title": "[ Removed by Reddit in response to a copyright notice. ]"},
        {"selftext": "[ Removed by reddit ]"},
        {"title": "[deleted by user]"},
        {"removal_reason": "copyright_takedown"},
        {"banned_by": "a_moderator"},
        {"_meta": {"was_deleted_later": True, "removal_type": "moderator"}},
    ]
    threads = range(1, len(gone) + 2)
    write_dump(tmp_path / "RS.ndjson", [submission(n, **changes) for n, changes in enumerate([*gone, {}], 1)])
    write_dump(tmp_path / "RC.ndjson", answers(*threads))
    steps, kept, _, rejects = read(tmp_path)
    assert [(row["reason"], row["line"]) for row in rejects] == [("removed", n) for n in threads[:-1]]
    assert steps["submissions"].rejected == {"removed": len(gone)}
    assert len(kept) == 1


def test_a_comment_without_parent_is_first_level_and_a_number_is_a_reply(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    roots = [comment(n, 1, parent_id=None) for n in range(3)]
    write_dump(tmp_path / "RC.ndjson", [*roots, comment(9, 1, parent_id=41290731234)])
    steps, threads, comments, _ = read(tmp_path)
    assert len(threads) == 1
    assert len(comments) == 3
    assert steps["comments"].dropped == {"not_first_level": 1}


@pytest.mark.parametrize(
    ("unripe", "changes"),
    [
        (
            True,
            [
                {"score_hidden": True},
                {"retrieved_on": 1_500_000_503},
                {"retrieved_utc": "1500086000"},
                {"retrieved_on": 1_500_000_520, "_meta": {"note": "no_2nd_retrieval"}},
            ],
        ),
        (
            False,
            [
                {"retrieved_on": 1_500_000_520, "_meta": {"retrieved_2nd_on": 1_500_000_500 + 129_650}},
                {"retrieved_on": 1_500_000_500 + 90_000},
                {"score_hidden": False},
            ],
        ),
    ],
    ids=["unripe", "ripe"],
)
def test_votes_that_were_hidden_or_counted_within_a_day_decide_nothing(
    tmp_path: Path, unripe: bool, changes: list[Row]
) -> None:
    steps, comments, _ = comments_beside(tmp_path, changes)
    assert [row["unripe"] for row in comments if row["score"] == 99] == [unripe] * len(changes)
    assert any("decides" in note for note in steps["comments"].notes) is unripe
    of: dict[str, list[Row]] = {}
    for row in comments:
        of.setdefault(row["thread_key"], []).append(row)
    assert {len(beside) for beside in of.values()} == {4}
    for beside in of.values():
        assert len(best_of(beside)) == (4 if unripe else 1)  # all tie: a judge decides, not people


def test_a_crosspost_shows_the_gallery_of_its_parent(tmp_path: Path) -> None:
    gallery = {"q": {"e": "Image", "status": "valid", "m": "image/png", "s": {"u": "https://i.redd.it/q.png"}}}
    parent = {"media_metadata": gallery, "gallery_data": {"items": [{"media_id": "q"}]}}
    again = submission(1, url="https://www.reddit.com/gallery/x", crosspost_parent_list=[parent])
    write_dump(tmp_path / "RS.ndjson", [again])
    write_dump(tmp_path / "RC.ndjson", answers(1))
    assert [row["image_from"] for row in read(tmp_path)[1]] == ["gallery"]


def test_a_file_in_the_folder_of_images_is_an_image_whatever_the_link_says(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/s0001_2.png").write_bytes(b"looked at later")
    asked = [submission(n, url="https://example.org/an-article") for n in (1, 2)]
    write_dump(tmp_path / "RS.ndjson", asked)
    write_dump(tmp_path / "RC.ndjson", answers(1, 2))
    steps, threads, *_ = read(tmp_path, images="images")
    assert [row["image_from"] for row in threads] == ["folder"]
    assert steps["submissions"].rejected == {"no_image": 1}


@pytest.mark.parametrize(("letters", "kept"), [(150, True), (660, False)])
def test_words_of_scripts_without_spaces_are_counted_by_their_signs(tmp_path: Path, letters: int, kept: bool) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1, title="这是什么和弦", selftext="音" * letters)])
    write_dump(tmp_path / "RC.ndjson", answers(1))
    steps, threads, *_ = read(tmp_path)
    assert [row["words"] for row in threads] == ([6 + letters] if kept else [])
    assert steps["submissions"].rejected == ({} if kept else {"too_many_words": 1})


def test_only_threads_in_the_languages_that_the_config_names_are_kept(tmp_path: Path) -> None:
    titles = ["What chord is this in the third bar?", "Was für ein Akkord ist das im dritten Takt?", "Bb7 C#m ?"]
    rows = [submission(n, title=title, selftext="") for n, title in enumerate(titles, 1)]
    write_dump(tmp_path / "RS.ndjson", rows)
    write_dump(tmp_path / "RC.ndjson", answers(1, 2, 3))
    steps, threads, *_ = read(tmp_path, languages=["en"])
    assert sorted(row["title"] for row in threads) == sorted([titles[0], titles[2]])
    assert steps["submissions"].rejected == {"other_language": 1}
    assert [language_of(title) for title in titles] == ["en", "de", None]


def score(seed: int, width: int, height: int, notes: int) -> Image.Image:
    """A staff with notes at random places."""
    rng, image = np.random.default_rng(seed), Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(image)
    for line in range(5):
        draw.line((20, 60 + line * 16, width - 20, 60 + line * 16), fill=0, width=2)
    for note in range(notes):
        x, y = 80 + note * (width - 120) // notes, 60 + 8 * int(rng.integers(-1, 10))
        draw.ellipse((x - 9, y - 7, x + 9, y + 7), fill=0)
        draw.line((x + 8, y, x + 8, y - 45), fill=0, width=2)
    return image


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "notes"), [(600, 160, 4), (900, 900, 4), (900, 900, 6)])
def test_scores_with_other_notes_are_no_duplicates_and_copies_are(width: int, height: int, notes: int) -> None:
    images = [score(seed, width, height, notes) for seed in range(30)]
    hashes = [difference_hash(image) for image in images]
    assert len(near_duplicates(hashes, 12)) > 3  # by hashes alone
    near = near_duplicates(hashes, 12, lambda one, other: is_same_picture(images[one], images[other]))
    assert {at for at, first in near.items() if images[at].tobytes() != images[first].tobytes()} == set()
    packed = io.BytesIO()
    images[0].convert("RGB").save(packed, "JPEG", quality=50)
    margins = Image.new("L", (width + 60, height + 40), 255)
    margins.paste(images[0], (30, 20))
    for copy in (images[0].resize((width // 2, height // 2)), Image.open(packed), margins):
        assert is_same_picture(images[0], copy)


def test_gray_images_with_transparent_paper_show_white_and_16_bits_with_8_are_scaled(tmp_path: Path) -> None:
    levels = np.ones((80, 200), np.uint8)
    levels[30:40] = 0
    gray, wide = io.BytesIO(), io.BytesIO()
    Image.fromarray(levels).save(gray, "PNG", transparency=1)
    Image.fromarray(np.where(levels, 255, 0).astype(np.uint16)).save(wide, "PNG")
    for content in (gray, wide):
        found = np.asarray(read_picture(content.getvalue()).image)
        assert (found[0, 0], found[35, 0]) == (255, 0)
