"""Find a submission's images: addresses in its fields and text, or files in a folder."""

import html
import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import parse_qs, urlsplit

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
LONGEST_ADDRESS = 2000  # characters
_LINK = re.compile(r"https?://[^\s<>\[\]()\"']+", re.IGNORECASE)
_AFTER_A_LINK = ".,;:!?*_~|\\"  # ends a sentence or emphasis, not an address
_REDDIT = ("reddit.com", "old.reddit.com", "new.reddit.com", "np.reddit.com")
_IMGUR = ("imgur.com", "i.imgur.com", "m.imgur.com")
_IMGUR_PAGE = re.compile(r"/(?:[rt]/\w+/)?(?:[\w-]+-)?([A-Za-z0-9]{5,10})(\.\w{3,4})?/?")
_NO_IMAGE = ("upload", "signin", "register", "random", "privacy", "rules", "about", "search", "gallery", "topics")
_UPLOAD = re.compile(r"/(?:[^/]+-v0-)?([a-z0-9]+\.(?:png|jpe?g|gif|webp))")
_UPLOADS = "i.reddituploads.com"  # the forum's own host before i.redd.it; its files have no endings
_ENDINGS = {"image/png": "png", "image/jpg": "jpg", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
_NAME = re.compile(r"[a-z0-9]+")
_NUMBER = re.compile(r"(\d+)")


class PicturedThread(TypedDict):
    """A row of `pictured.sql`: a kept thread with the dump's id and place, and what names its images."""

    thread_key: str
    id: str
    file: str
    line: int
    image_from: str
    text: str
    url: str | None
    media_metadata: str | None
    gallery_data: str | None
    preview: str | None


def image_links(submission: PicturedThread) -> list[str]:
    """Return the addresses of a submission's images, first to last, without repeats; send no requests.

    Pages are resolved by the rules of `image_of`, else by the forum's `preview`.

    Args:
        submission: `url`, `text`, `media_metadata`, `gallery_data`, `preview` from the dump, the last three as
            JSON text; and `image_from`, the source to use. Malformed values are ignored.
    """
    previews = _at(_parsed(submission["preview"]), "images")
    shown = [_at(_at(image, "source"), "url") for image in previews] if isinstance(previews, list) else []
    match submission["image_from"]:
        case "direct" | "page":
            links = [image_of(link) for link in _written([submission["url"]])]
        case "gallery":
            order = _parsed(submission["gallery_data"])
            images = _gallery(_parsed(submission["media_metadata"]), order, submission["text"])
            links = [image_of(link) or link for link in _written(images)]
        case "text":
            links = [image_of(link.rstrip(_AFTER_A_LINK)) for link in _written(_LINK.findall(submission["text"]))]
        case _:
            links = []
    return list(dict.fromkeys(link for link in links if link)) or list(dict.fromkeys(_written(shown)))


def _written(links: Sequence[Any]) -> list[str]:
    """Return the possible addresses, with the dump's HTML undone."""
    return [html.unescape(link) for link in links if isinstance(link, str) and len(link) <= LONGEST_ADDRESS]


def image_of(address: str) -> str | None:
    """Return the image file behind a link, or None without a matching rule.

    Rules: a page of one image at Imgur is the file of its name at `i.imgur.com`, served under any ending
    (`.gifv` is a page, too); `reddit.com/media` names the file in its query; a file of `preview.redd.it` was
    uploaded to `i.redd.it` under the last part of its name. An album names no file. Hosts of old http links
    serve https by now.
    """
    try:
        parts = urlsplit(address)
        host, path, plain = (parts.hostname or "").removeprefix("www."), parts.path, parts.port is None
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    if host in _IMGUR:
        page = _IMGUR_PAGE.fullmatch(path)
        return f"https://i.imgur.com/{page[1]}{_imgur_ending(page[2])}" if page and page[1] not in _NO_IMAGE else None
    if host in _REDDIT and path == "/media":
        inner = parse_qs(parts.query).get("url", [""])[0]
        return None if "/media?" in inner else image_of(inner)
    if host == "preview.redd.it" and (upload := _UPLOAD.fullmatch(path)):
        return f"https://i.redd.it/{upload[1]}"
    if host == _UPLOADS or path.lower().endswith(SUFFIXES):
        return parts._replace(scheme="https").geturl() if plain else address
    return None


def _imgur_ending(written: str | None) -> str:
    """Return a file's ending at Imgur: a film is served as its original moving image."""
    written = (written or ".jpg").lower()
    return ".gif" if written in (".gifv", ".mp4", ".webm") else written


def _gallery(metadata: Any, order: Any, text: str) -> list[Any]:
    """Return the images of a gallery in its displayed order, else as the text names them, else in stored order."""
    if not isinstance(metadata, dict):
        return []
    items = _at(order, "items")
    shown = [_at(item, "media_id") for item in items] if isinstance(items, list) else []
    ids = [name for name in shown if isinstance(name, str) and name in metadata]
    ids = ids or sorted(metadata, key=lambda name: at if (at := text.find(name)) >= 0 else len(text))
    return [
        _uploaded(name, metadata[name])
        for name in ids
        if _at(metadata[name], "e") in ("Image", "AnimatedImage") and _at(metadata[name], "status") in ("valid", None)
    ]


def _uploaded(name: str, media: Any) -> Any:
    """Return the address of a gallery image's largest form, or else of the file uploaded under its id."""
    largest = _at(media, "s")
    ending = _ENDINGS.get(str(_at(media, "m"))) if _NAME.fullmatch(name) else None
    return _at(largest, "u") or _at(largest, "gif") or (f"https://i.redd.it/{name}.{ending}" if ending else None)


def _at(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def images_in(folder: Path, submissions: Collection[str]) -> dict[str, list[Path]]:
    """Return image files of submissions in a folder: `<id>.<suffix>`, `<id>_2.<suffix>`, `<id>-2.<suffix>` or
    `<id>/…`."""
    by_submission: dict[str, list[Path]] = defaultdict(list)
    ids_here = set(submissions)
    for path in folder.iterdir():
        if path.name in ids_here and path.is_dir():
            by_submission[path.name] += [file for file in path.iterdir() if file.suffix.lower() in SUFFIXES]
        elif path.suffix.lower() in SUFFIXES:
            ids = (path.stem, *(path.stem.rpartition(mark)[0] for mark in "_-"))
            if known := next((name for name in ids if name in ids_here), None):
                by_submission[known].append(path)
    return {name: sorted(files, key=_by_number) for name, files in by_submission.items()}


def ids_in(folder: Path) -> set[str]:
    """Return the possible submission ids in a folder's file names, by the rules of `images_in`."""
    names = {path.name if path.is_dir() else path.stem for path in folder.iterdir()}
    return names | {name.rpartition(mark)[0] for name in names for mark in "_-"} - {""}


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Return a key sorting `a_10` after `a_2`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(path.stem)]
