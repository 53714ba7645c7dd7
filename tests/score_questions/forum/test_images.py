"""Images in: found by submission, made safe, near-duplicates out; and nothing of the dump's names anywhere."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from earmark.schemas.errors import InputError
from earmark.schemas.forum import IMAGES
from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.score_questions.forum.download import Gate
from earmark.tasks.score_questions.forum.images import NEAR_BITS, THE_WEB, _without_near, find_scores
from earmark.tasks.score_questions.forum.links import image_links, images_in
from earmark.tasks.score_questions.forum.pictures import (
    difference_hash,
    is_same_picture,
    near_duplicates,
    read_picture,
)
from earmark.tasks.score_questions.forum.scrubbing import forget_names
from earmark.tasks.store.manifest import Step
from tests.conftest import ROOT
from tests.score_questions import drawings
from tests.score_questions.forum.builds import HOST, gate_to
from tests.score_questions.forum.threads_of import (
    SALT,
    comment,
    forum_config,
    forum_stage,
    read_threads,
    submission,
    write_dump,
)
from tests.servers.image_server import serving

DEMO = ROOT / "data/demo/forum"
Built = tuple[dict[str, Step], dict[str, list[dict[str, Any]]]]


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def packed(image: Image.Image, form: str = "PNG", **more: Any) -> bytes:
    """An image's file."""
    out = io.BytesIO()
    image.save(out, form, **more)
    return out.getvalue()


def build(
    folder: Path, config: ScoreQuestions, gate: Gate = THE_WEB
) -> tuple[dict[str, Step], dict[str, list[dict[str, Any]]]]:
    """Steps by name, and the rows of every table and of the rejects."""
    with forum_stage(folder) as stage:
        candidates, texts = read_threads(stage, config)
        images = find_scores(stage, config, texts.threads, candidates, gate)
        forget_names(stage)
        files = sorted([*stage.work.glob("*.parquet"), *stage.work.glob("rejects/*.parquet")])
        assert pq.read_schema(images).equals(IMAGES)
        assert not list((stage.work / "forum").iterdir())
        steps = {step.name: step for step in stage.steps()}
        for step in steps.values():
            assert step.entered == step.kept + sum(step.rejected.values()) + sum(step.dropped.values()), step
        return steps, {
            path.relative_to(stage.work).with_suffix("").as_posix(): pq.read_table(path).to_pylist() for path in files
        }


def demo() -> ScoreQuestions:
    """The config of the demo's dump."""
    source = {
        "submissions": ["RS_2014.ndjson", "RS_2020.ndjson.zst"],
        "comments": ["RC_2014.ndjson", "RC_2020.ndjson.zst"],
        "subreddits": ["musictheory"],
    }
    return forum_config(DEMO, source=source, images="images")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What the demo's dump gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        return build(tmp_path_factory.mktemp("demo"), demo())


@pytest.mark.slow
def test_the_demos_dump_gives_its_threads_with_scores(built: Built) -> None:
    steps, tables = built
    assert steps["scores"].kept == 37
    assert {row["score_confidence"] >= 0.5 for row in tables["images"]} == {True, False}
    assert steps["images"].rejected["near_duplicate"] >= 2
    assert steps["images"].rejected["file_missing"] == 2


@pytest.mark.slow
def test_no_name_id_link_or_address_of_the_dump_is_in_any_table(built: Built) -> None:
    tables = built[1]
    text = "\n".join(str(value) for rows in tables.values() for row in rows for value in row.values()).lower()
    secrets: set[str] = set()
    for path in DEMO.glob("R*"):
        content = path.read_bytes()
        content = zstandard.decompress(content) if path.suffix == ".zst" else content
        for line in content.split(b"\n"):
            if line.startswith(b"{") and line.endswith(b"}"):
                row = json.loads(line)
                secrets |= {row["author"], row["id"], row.get("link_id", row["id"]), row.get("permalink", row["id"])}
                secrets |= set(re.findall(r"https?://\S+", line.decode()))
    assert len(secrets) > 300
    assert [secret for secret in secrets if secret.lower() in text] == []


@pytest.mark.slow
def test_the_same_dump_gives_the_same_tables(tmp_path: Path, built: Built) -> None:
    assert build(tmp_path, demo()) == built


def test_a_missing_folder_of_images_is_one_line(tmp_path: Path) -> None:
    write_dump(tmp_path / "RS.ndjson", [submission(1)])
    write_dump(tmp_path / "RC.ndjson", [comment(number, 1) for number in range(3)])
    with pytest.raises(InputError, match=r"images: expected a folder, found none at nowhere"):
        build(tmp_path, forum_config(tmp_path, images="nowhere"))


def test_finds_files_by_submission(tmp_path: Path) -> None:
    for name in ("a1.png", "b2_10.jpg", "b2_2.JPG", "c3/x.png", "c3/notes.txt", "d4.txt", "other.png", "b2-1.gif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = images_in(tmp_path, ["a1", "b2", "c3", "d4"])
    names = {name: [file.relative_to(tmp_path).as_posix() for file in files] for name, files in found.items()}
    assert names == {"a1": ["a1.png"], "b2": ["b2-1.gif", "b2_2.JPG", "b2_10.jpg"], "c3": ["c3/x.png"]}


def test_links_of_a_gallery_stand_in_its_order() -> None:
    def item(link: str, **changes: Any) -> dict[str, Any]:
        return {"status": "valid", "e": "Image", "m": "image/png", "s": {"u": link}, **changes}

    media = {"a": item("https://x/a?b&amp;c"), "b": item("https://x/b"), "c": item("https://x/c", status="failed")}
    row = {
        "image_from": "gallery",
        "text": "",
        "preview": None,
        "media_metadata": json.dumps(media),
        "gallery_data": json.dumps({"items": [{"media_id": "b"}, {"media_id": "a"}, {"media_id": "lost"}]}),
    }
    assert image_links(row) == ["https://x/b", "https://x/a?b&c"]
    assert image_links({**row, "gallery_data": None}) == ["https://x/a?b&c", "https://x/b"]


def test_pictures_within_a_text_stand_in_its_order() -> None:
    upload = {"status": "valid", "e": "Image", "m": "image/png"}
    row = {
        "image_from": "gallery",
        "text": "First ![img](k7first) this bar,\n\nhttps://preview.redd.it/a2then.png?width=9 after that.",
        "preview": None,
        "media_metadata": json.dumps(dict.fromkeys(("b9nowhere", "a2then", "k7first"), upload)),
        "gallery_data": None,
    }
    assert image_links(row) == [f"https://i.redd.it/{name}.png" for name in ("k7first", "a2then", "b9nowhere")]


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.sampled_from(["valid", "Image", "https://x/y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["items", "images", "source", "url", "s", "u", "e", "media_id", "a"]), inner)
    ),
)


@pytest.mark.slow
@given(st.sampled_from(["direct", "gallery", "page", "preview", "text"]), JSON, JSON, JSON, st.none() | st.text())
def test_links_of_anything_are_texts(kind: str, media: Any, order: Any, preview: Any, url: str | None) -> None:
    row = {"image_from": kind, "url": url, "text": url or ""}
    row |= {"media_metadata": json.dumps(media), "gallery_data": json.dumps(order), "preview": json.dumps(preview)}
    assert all(isinstance(link, str) for link in image_links(row))


def test_what_is_kept_of_an_image_is_its_pixels() -> None:
    page = drawings.score(1).convert("RGB")
    exif = Image.Exif()
    exif[0x010E], exif[0x8825] = "taken at home", {1: "N"}
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Author", "somebody")
    for content in (packed(page, "JPEG", exif=exif), packed(page, exif=exif, pnginfo=notes)):
        picture = read_picture(content + b"appended")
        again = Image.open(io.BytesIO(picture.content))
        again.load()
        assert not again.getexif()
        assert not {"Author", "exif", "comment"} & again.info.keys()
        assert b"somebody" not in picture.content
        assert b"appended" not in picture.content
        assert np.abs(np.asarray(again.convert("L"), float) - np.asarray(page.convert("L"), float)).mean() < 2


def test_an_image_stands_upright_and_on_white() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by the camera
    assert read_picture(packed(Image.new("RGB", (200, 100), "red"), "JPEG", exif=exif)).image.size == (100, 200)
    clear = read_picture(packed(Image.new("RGBA", (100, 100), (0, 0, 0, 0))))
    assert clear.image.mode == "L"
    assert np.asarray(clear.image).min() == 255


def ramp(kind: str, white: float) -> Image.Image:
    """From black to white, on a scale of its own."""
    return Image.fromarray(np.tile(np.linspace(0, white, 256), (128, 1)).astype(kind))


@pytest.mark.parametrize(
    ("form", "image"),
    [
        ("PNG", ramp("uint16", 65_535)),
        ("TIFF", ramp("uint16", 65_535)),
        ("TIFF", ramp("int32", 65_535)),
        ("TIFF", ramp("int32", 255)),
        ("TIFF", ramp("float32", 1.0)),
        ("TIFF", ramp("float32", 255.0)),
        ("TIFF", ramp("uint8", 255).convert("CMYK")),
        ("JPEG", ramp("uint8", 255).convert("CMYK")),
        ("PNG", ramp("uint8", 255).convert("RGBA")),
        ("PNG", ramp("uint8", 255).quantize(256)),
        ("GIF", ramp("uint8", 255)),
        ("WEBP", ramp("uint8", 255).convert("RGB")),
    ],
)
def test_a_scale_of_grays_is_read_as_a_person_sees_it(form: str, image: Image.Image) -> None:
    seen = np.asarray(read_picture(packed(image, form)).image.convert("L"), float)
    assert np.abs(seen[64] - np.arange(256)).max() <= 6


def test_moving_and_multiple_pictures_show_their_first() -> None:
    page, blank = drawings.score(1).convert("RGB"), Image.new("RGB", drawings.score(1).size, "white")
    for form in ("GIF", "PNG", "WEBP", "TIFF", "MPO"):
        picture = read_picture(packed(page, form, save_all=True, append_images=[blank]))
        seen = np.asarray(picture.image.convert("L"), float)
        assert np.abs(seen - np.asarray(page.convert("L"), float)).mean() < 3, form
        assert picture.extension == ("jpg" if form == "MPO" else "png")


def test_a_large_image_is_scaled_down() -> None:
    assert read_picture(packed(Image.new("L", (4000, 1000)))).image.size == (2048, 512)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that says it has that many pixels, and has them."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(width // 8 + 1)) for _ in range(min(height, 2000))) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("image_too_large", bomb(60_000, 60_000)),
        ("image_too_large", bomb(9_000, 9_000)),
        ("image_too_small", packed(Image.new("L", (400, 20)))),
        ("file_unreadable", b""),
        ("file_unreadable", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("file_unreadable", b"%!PS-Adobe-3.0 EPSF-3.0\n"),
        ("file_unreadable", packed(drawings.score(1))[:900]),
    ],
    ids=["huge bomb", "bomb", "thin", "empty", "svg", "postscript", "cut"],
)
def test_what_is_no_fit_image_is_a_reject(reason: str, content: bytes) -> None:
    with pytest.raises(BadRow) as caught:
        read_picture(content)
    assert caught.value.reason == reason


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(BadRow, match="at most 20,000,000 bytes"):
        read_picture(packed(drawings.score(1)) + bytes(20_000_000))


WHOLE = {form: packed(drawings.score(2).convert("RGB"), form) for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")}


@pytest.mark.filterwarnings("ignore::UserWarning")  # odd metadata
@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 10_000), st.binary(max_size=40))
def test_no_spoilt_image_stops_a_build(form: str, at: int, noise: bytes) -> None:
    content = WHOLE[form]
    at %= len(content)
    with suppress(BadRow):
        assert read_picture(content[:at] + noise + content[at + len(noise) :]).content


def test_copies_are_near_and_others_are_not() -> None:
    pages = [drawings.score(seed) for seed in range(40)]
    hashes = [difference_hash(page) for page in pages]
    copies = [
        Image.open(io.BytesIO(packed(page.resize((page.width // 2, page.height // 2)), "JPEG"))) for page in pages
    ]
    assert near_duplicates(hashes, NEAR_BITS) == {}
    found = near_duplicates([*hashes, *map(difference_hash, copies)], NEAR_BITS)
    assert len(found) >= 38
    assert all(copy - 40 == first for copy, first in found.items())


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 0.75, 1.4, 2])
def test_copies_of_small_scores_in_another_size_are_the_same_picture_and_other_scores_are_not(scale: float) -> None:
    pages = [drawings.score(seed, staves=1, space=11, width=420) for seed in range(30)]
    sizes = [(round(page.width * scale), round(page.height * scale)) for page in pages]
    scaled = [page.resize(size, Image.Resampling.LANCZOS) for page, size in zip(pages, sizes, strict=True)]
    copies = [
        Image.open(io.BytesIO(packed(page, ("PNG", "JPEG")[seed % 2], quality=70))) for seed, page in enumerate(scaled)
    ]
    found = sum(is_same_picture(page, copy) for page, copy in zip(pages, copies, strict=True))
    assert found >= 29
    for seed, page in enumerate(pages):
        assert not any(is_same_picture(page, copies[other]) for other in range(seed - 8, seed))


def left_of(folder: Path, pictures: dict[str, int], kept_out: Sequence[int] = ()) -> tuple[list[str], dict[str, str]]:
    """The scores left of threads' pictures by `thread/place`, drawn by number, and why others left."""
    rows, out = [], []
    for name, number in [*pictures.items(), *(("", number) for number in kept_out)]:
        picture = read_picture(packed(drawings.score(number)))
        path = folder / f"{picture.sha256}.{picture.extension}"
        path.write_bytes(picture.content)
        thread, _, place = name.partition("/")
        known: dict[str, Any] = {"image_sha256": picture.sha256, "extension": picture.extension, "is_score": True}
        known |= {"thread_key": thread, "difference_hash": picture.difference_hash.hex()}
        if name:
            rows.append({**known, "place": int(place)})
        else:
            out.append((picture.difference_hash, path))
    left, refused = _without_near(rows, NEAR_BITS, folder, out)  # type: ignore[arg-type]
    names = [f"{row['thread_key']}/{row['place']}" for row in left]
    assert sorted([*names, *(reject.item for _, reject in refused)]) == sorted(pictures)
    return names, {reject.item: reject.reason for _, reject in refused}


def test_a_thread_without_its_first_score_shows_no_later_one(tmp_path: Path) -> None:
    pictures = {"A/1": 1, "B/1": 1, "B/2": 2, "C/1": 2}  # B/2 is not kept, so that C/1 is no copy of a kept picture
    assert left_of(tmp_path, pictures) == (["A/1", "C/1"], dict.fromkeys(("B/1", "B/2"), "near_duplicate"))
    assert left_of(tmp_path, pictures, kept_out=[1]) == (
        ["C/1"],
        dict.fromkeys(("A/1", "B/1", "B/2"), "decontaminated"),
    )
    within = {"A/1": 1, "A/2": 1, "A/3": 2}  # what is lost is no first score
    assert left_of(tmp_path, within) == (["A/1", "A/3"], {"A/2": "near_duplicate"})


@pytest.mark.slow
def test_no_later_image_stands_in_for_one_that_was_not_downloaded(tmp_path: Path) -> None:
    """Another build would get the first one, and so ask about another picture."""
    with serving(packed(drawings.score(1))) as server:
        at = f"http://{HOST}:{server.port}"
        text = f"Compare {at}/broken.png with {at}/good.png please."
        write_dump(tmp_path / "RS.ndjson", [submission(1, url="https://www.reddit.com/r/x/", selftext=text)])
        write_dump(tmp_path / "RC.ndjson", [comment(number, 1) for number in range(3)])
        steps, tables = build(tmp_path, forum_config(tmp_path), gate_to(server.port))
        assert server.asked["/good.png"] == 1
    assert tables["images"] == []
    assert steps["images"].rejected == {"download_failed": 2}


@given(st.lists(st.integers(0, 15), max_size=12))
def test_a_duplicate_is_of_one_that_stays(levels: list[int]) -> None:
    hashes = [bytes([255 >> 8 - min(level, 8)] * 4 + [0] * 28) for level in levels]
    found = near_duplicates(hashes, 4)
    assert not set(found) & set(found.values())
    assert all(first < copy for copy, first in found.items())
