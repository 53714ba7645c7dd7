"""What each link of a post must become: sixty as people wrote them, and where the forum keeps images itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.score_questions.forum.links import image_links, image_of
from tests.score_questions.forum.threads_of import (
    SALT,
    comment,
    forum_config,
    forum_stage,
    read_threads,
    submission,
    write_dump,
)

I = "https://i.imgur.com/"  # noqa: E741 (a table reads better by one letter)
R = "https://i.redd.it/"


# what the post's `url` is, and the file that shows it (None: no rule gives it)
ADDRESSES: list[tuple[str, str | None]] = [
    # files, as they are
    ("https://i.redd.it/n1o2p3.png", R + "n1o2p3.png"),
    ("https://i.redd.it/n1o2p3.JPG", R + "n1o2p3.JPG"),
    ("https://i.imgur.com/Qz81bKe.png", I + "Qz81bKe.png"),
    ("https://example.org/scans/sonata.tiff", "https://example.org/scans/sonata.tiff"),
    ("https://example.org/scans/sonata.jpeg?width=900", "https://example.org/scans/sonata.jpeg?width=900"),
    ("https://upload.wikimedia.org/wikipedia/commons/a/a1/Bach.gif", "https://upload.wikimedia.org/wikipedia/commons/a/a1/Bach.gif"),
    # files by the address of their day
    ("http://i.imgur.com/Qz81bKe.png", I + "Qz81bKe.png"),
    ("http://i.imgur.com/Qz81bKe.jpg?1", I + "Qz81bKe.jpg"),
    ("http://i.imgur.com/Qz81b.png", I + "Qz81b.png"),
    ("http://imgur.com/Qz81bKe.png", I + "Qz81bKe.png"),
    ("https://imgur.com/Qz81bKe.jpeg", I + "Qz81bKe.jpeg"),
    ("http://www.example.org/page3.bmp", "https://www.example.org/page3.bmp"),
    ("https://i.imgur.com/Qz81bKe.PNG", I + "Qz81bKe.png"),
    # Imgur's files without an ending, and its films
    ("https://i.imgur.com/Qz81bKe", I + "Qz81bKe.jpg"),
    ("http://i.imgur.com/Qz81bKe/", I + "Qz81bKe.jpg"),
    ("https://i.imgur.com/Qz81bKe.gifv", I + "Qz81bKe.gif"),
    ("http://i.imgur.com/Qz81bKe.GIFV", I + "Qz81bKe.gif"),
    ("https://i.imgur.com/Qz81bKe.mp4", I + "Qz81bKe.gif"),
    ("https://i.imgur.com/Qz81bKe.webm", I + "Qz81bKe.gif"),
    # Imgur's pages of one image
    ("https://imgur.com/Qz81bKe", I + "Qz81bKe.jpg"),
    ("http://imgur.com/Qz81bKe", I + "Qz81bKe.jpg"),
    ("http://www.imgur.com/Qz81bKe", I + "Qz81bKe.jpg"),
    ("https://m.imgur.com/Qz81bKe", I + "Qz81bKe.jpg"),
    ("https://imgur.com/Qz81bKe?desktop=1", I + "Qz81bKe.jpg"),
    ("https://imgur.com/Qz81bKe#abc", I + "Qz81bKe.jpg"),
    ("https://imgur.com/r/musictheory/Qz81bKe", I + "Qz81bKe.jpg"),
    ("https://imgur.com/t/piano/Qz81bKe", I + "Qz81bKe.jpg"),
    ("https://imgur.com/what-chord-is-this-Qz81bKe", I + "Qz81bKe.jpg"),
    # Imgur's pages of many, or of none
    ("https://imgur.com/a/Qz81b", None),
    ("http://imgur.com/a/Qz81b#0", None),
    ("https://imgur.com/gallery/Qz81bKe", None),
    ("https://imgur.com/gallery/two-bars-Qz81bKe", None),
    ("https://imgur.com/a/two-bars-Qz81bKe", None),
    ("https://imgur.com/user/somebody", None),
    ("https://imgur.com/upload", None),
    ("https://imgur.com/", None),
    ("https://imgur.com", None),
    # the forum's own pages
    ("https://www.reddit.com/media?url=https%3A%2F%2Fi.redd.it%2Fn1o2p3.png", R + "n1o2p3.png"),
    ("https://reddit.com/media?url=https%3A%2F%2Fpreview.redd.it%2Fn1o2p3.png%3Fs%3Dabc", R + "n1o2p3.png"),
    ("https://www.reddit.com/media?url=https%3A%2F%2Fwww.reddit.com%2Fmedia%3Furl%3Dx", None),
    ("https://www.reddit.com/media", None),
    ("https://www.reddit.com/gallery/n8x2ab", None),
    ("https://www.reddit.com/r/musictheory/comments/n8x2ab/what_chord/", None),
    ("https://v.redd.it/k3j2h1g0f9e81", None),
    # previews
    ("https://preview.redd.it/n1o2p3.png?width=1080&format=png&auto=webp&s=0123abcd", R + "n1o2p3.png"),
    ("https://preview.redd.it/n1o2p3.jpg?auto=webp&amp;s=0123abcd", R + "n1o2p3.jpg"),
    ("https://preview.redd.it/what-chord-is-this-v0-n1o2p3.jpeg?width=640&s=0123", R + "n1o2p3.jpeg"),
    ("https://external-preview.redd.it/aB-c.jpg?s=0123", "https://external-preview.redd.it/aB-c.jpg?s=0123"),
    ("https://cdn.example.org/a/b.webp", "https://cdn.example.org/a/b.webp"),
    ("https://i.reddituploads.com/0a1b2c?fit=max&amp;h=1536&amp;s=77", "https://i.reddituploads.com/0a1b2c?fit=max&h=1536&s=77"),
    # no images, and no addresses
    ("https://www.youtube.com/watch?v=abcdefghijk", None),
    ("https://musescore.com/user/1/scores/2", None),
    ("https://example.org/score.pdf", None),
    ("https://example.org/?image=a.png", None),
    ("https://imgur.com.example.org/Qz81bKe", None),
    ("ftp://i.imgur.com/Qz81bKe.png", None),
    ("javascript:alert(1).png", None),
    ("https://[broken/a.png", None),
    ("", None),
]  # fmt: skip


def post(**changes: Any) -> dict[str, Any]:
    """What the dump says of a post's images."""
    none = {"url": None, "text": "", "media_metadata": None, "gallery_data": None, "preview": None}
    return {"image_from": "direct", **none, **changes}


def test_there_are_sixty() -> None:
    assert len(ADDRESSES) + len(FIELDS) >= 60
    assert len(dict(ADDRESSES)) == len(ADDRESSES)


@pytest.mark.parametrize(("address", "file"), ADDRESSES)
def test_an_address_becomes_the_file_that_it_shows(address: str, file: str | None) -> None:
    assert image_links(post(url=address)) == ([file] if file else [])
    if file:
        assert image_of(file) == file, "what a rule gives is a file"


def item(link: str | None, **changes: Any) -> dict[str, Any]:
    """An image of a gallery."""
    return {"status": "valid", "e": "Image", "m": "image/png", "s": {"u": link, "x": 900, "y": 400}, **changes}


SHOWN = {"images": [{"source": {"url": "https://external-preview.redd.it/aB.png?auto=webp&amp;s=01"}}]}
KEPT = "https://external-preview.redd.it/aB.png?auto=webp&s=01"
TEXT = "See [bar 3](http://i.imgur.com/Qz81bKe.png), then https://imgur.com/Aa11bBc. (Not https://imgur.com/a/Qz81b!)"
LOST = {"status": "failed"}
# the forum's own fields of a post, which of them counts, and the files in their order
FIELDS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("gallery", {"media_metadata": {"a1": item("https://preview.redd.it/a1.png?width=9&amp;s=0")}}, [R + "a1.png"]),
    (
        "gallery",
        {
            "media_metadata": {
                "a1": item("https://preview.redd.it/a1.png?s=0"),
                "b2": item("https://preview.redd.it/b2.jpg?s=0"),
                "c3": LOST,
            },
            "gallery_data": {"items": [{"media_id": one} for one in ("b2", "a1", "c3", "gone")]},
        },
        [R + "b2.jpg", R + "a1.png"],
    ),
    ("gallery", {"media_metadata": {"a1": item(None, m="image/jpg")}}, [R + "a1.jpg"]),
    ("gallery", {"media_metadata": {"../a1": item(None)}}, []),
    ("gallery", {"media_metadata": {"a1": item(None, e="AnimatedImage", s={"gif": R + "a.gif"})}}, [R + "a.gif"]),
    ("gallery", {"media_metadata": {"a1": {"status": "valid", "e": "RedditVideo"}}}, []),
    ("text", {"text": TEXT}, [I + "Qz81bKe.png", I + "Aa11bBc.jpg"]),
    (
        "text",
        {"text": "![img](https://preview.redd.it/a1.png?width=9&amp;s=0)\n\nhttps://i.redd.it/b2.jpg"},
        [R + "a1.png", R + "b2.jpg"],
    ),
    ("text", {"text": "**https://i.redd.it/b2.jpg**"}, [R + "b2.jpg"]),
    ("preview", {"text": "An album: https://imgur.com/a/Qz81b", "preview": SHOWN}, [KEPT]),
    ("page", {"url": "https://imgur.com/a/Qz81b", "preview": SHOWN}, [KEPT]),
    ("page", {"url": "https://imgur.com/Qz81bKe", "preview": SHOWN}, [I + "Qz81bKe.jpg"]),
    ("preview", {"url": "https://musescore.com/1", "preview": SHOWN}, [KEPT]),
]  # fmt: skip


@pytest.mark.parametrize(("image_from", "fields", "files"), FIELDS)
def test_a_post_names_its_images_in_order(image_from: str, fields: dict[str, Any], files: list[str]) -> None:
    as_text = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in fields.items()}
    assert image_links(post(image_from=image_from, **as_text)) == files


def test_the_reader_of_dumps_names_the_same_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the query over a dump takes for a post with images is what the rules above find images in."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    own = {"text": "selftext"}
    posts = [{"url": address} for address, _ in ADDRESSES]
    posts += [{own.get(name, name): value for name, value in fields.items()} for _, fields, _ in FIELDS]
    expected = ["direct" if file else None for _, file in ADDRESSES] + [
        place if files else None for place, _, files in FIELDS
    ]
    rows = [submission(at, **{"url": "https://www.reddit.com/r/x/comments/y/", **one}) for at, one in enumerate(posts)]
    write_dump(tmp_path / "RS.ndjson", rows)
    write_dump(tmp_path / "RC.ndjson", [comment(at * 4 + n, at) for at in range(len(rows)) for n in range(4)])
    with forum_stage(tmp_path) as stage:
        candidates, _ = read_threads(stage, forum_config(tmp_path))
        read = {row["id"]: row for row in pq.read_table(candidates).to_pylist()}
    for at, (one, place) in enumerate(zip(posts, expected, strict=True)):
        row = read.get(f"s{at:04d}")
        files = image_links(row) if row else []
        if place is None:
            assert not files, one
        else:
            assert row is not None, f"the reader passes by {one}"
            assert row["image_from"] in ({"direct", "page"} if place == "direct" else {place}), one


@given(st.text() | st.from_regex(r"https?://(www\.|i\.)?(imgur\.com|reddit\.com/media\?url=|preview\.redd\.it)[^ ]*"))
def test_any_text_gives_an_address_by_http_or_none(address: str) -> None:
    file = image_of(address)
    assert file is None or file.startswith(("https://", "http://"))
