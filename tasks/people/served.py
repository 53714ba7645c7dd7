"""Serve the pages of a study over HTTP, each at an address with its key, and receive its answers there."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from earmark.schemas.errors import InputError
from earmark.schemas.study import ANSWERS, PAGES, AnnotatorPage, StudyPlan
from earmark.tasks.people.answers import MOST_BYTES, TRIAL_BYTES, parse_answers
from earmark.tasks.people.page import CLIPS, PLAYABLE
from earmark.tasks.store.files import replacing

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_RANGE = re.compile(r"bytes=([0-9]{1,12})-([0-9]{0,12})")
_ADDRESS = re.compile(r"/([0-9a-f]{32})/(?:(answers)|clips/([0-9a-f]{16}(\.[a-z0-9]+)))?")

MOST_DISCARDED_BYTES = 8 << 20
LOG = logging.getLogger("earmark.people")


class StudyApp:
    """The WSGI application: GET `/<key>/` is a page, `/<key>` leads there, GET `/<key>/clips/…` a clip, POST
    `/<key>/answers` takes answers, GET returns them. Without a key nothing is disclosed, not even the number of
    pages."""

    def __init__(self, plan: StudyPlan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._pages = {page.key: page for page in plan.pages}
        self._lock = threading.Lock()  # two tabs may send the same page at once

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = self._answer(environ)
        part = _RANGE.fullmatch(environ.get("HTTP_RANGE", "")) if status == HTTPStatus.OK else None
        extra = [("Location", body.decode())] if status == HTTPStatus.FOUND else [("Accept-Ranges", "bytes")]
        first, last = (int(part[1]), min(int(part[2] or len(body)), len(body) - 1)) if part else (0, -1)
        if first <= last:  # Safari plays nothing from a server without ranges
            extra.append(("Content-Range", f"bytes {first}-{last}/{len(body)}"))
            status, body = HTTPStatus.PARTIAL_CONTENT, body[first : last + 1]
        headers = [
            *extra,
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cache-Control", "no-store"),
        ]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, str, bytes]:
        path = environ.get("PATH_INFO", "")
        if path[1:] in self._pages:  # mail programs drop a link's last slash, and the page's clips lie below it
            return _text(HTTPStatus.FOUND, f"{path[1:]}/")
        match = _ADDRESS.fullmatch(path)
        page = self._pages.get(match[1]) if match else None
        if match is None or page is None:
            return _text(HTTPStatus.NOT_FOUND, "not found")
        method = environ["REQUEST_METHOD"]
        if match[2] and method == "POST":
            return self._take(environ, page)
        if method != "GET":
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET, or POST of answers")
        if match[2]:  # answers sent before, to continue in another browser
            kept = self._folder / ANSWERS / f"{page.name}.json"
            answers = kept.read_bytes() if kept.exists() else b""
            return HTTPStatus.OK if answers else HTTPStatus.NO_CONTENT, "application/json", answers
        name, kind = f"{page.name}.html", "text/html; charset=utf-8"
        if match[3]:
            name, kind = f"{CLIPS}/{match[3]}", PLAYABLE.get(match[4], "application/octet-stream")
        try:
            content = (self._folder / PAGES / name).read_bytes()
        except OSError:
            return _text(HTTPStatus.NOT_FOUND, "not found")
        return HTTPStatus.OK, kind, content

    def _take(self, environ: WSGIEnvironment, page: AnnotatorPage) -> tuple[HTTPStatus, str, bytes]:
        """Save the answers sent by a page, unless they add nothing to the saved ones."""
        length, most = environ.get("CONTENT_LENGTH") or "", min(MOST_BYTES, (len(page.trials) + 1) * TRIAL_BYTES)
        declared = int(length) if re.fullmatch("[0-9]{1,9}", length) else None
        if declared is None or declared > most:
            self._discard(environ, declared or 0)
            return _text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes, with their length")
        if not environ.get("CONTENT_TYPE", "").startswith("application/json"):  # no form of another site sends this
            return _text(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        try:
            content = environ["wsgi.input"].read(declared)
        except OSError:  # the sender stopped
            content = b""
        if len(content) != declared:
            return _text(HTTPStatus.REQUEST_TIMEOUT, f"expected {length} bytes, found {len(content)}")
        with self._lock:
            return self._keep(content, page.name)

    @staticmethod
    def _discard(environ: WSGIEnvironment, length: int) -> None:
        """Read a refused body up to a limit, so that its sender reads the refusal, not a broken connection."""
        left = min(length, MOST_DISCARDED_BYTES)
        with suppress(OSError):  # the sender stopped
            while left > 0 and (part := environ["wsgi.input"].read(min(left, 1 << 16))):
                left -= len(part)

    def _keep(self, content: bytes, name: str) -> tuple[HTTPStatus, str, bytes]:
        path = self._folder / ANSWERS / f"{name}.json"
        try:
            sent = parse_answers(self._plan, content, name)
            if sent.page != name:
                raise InputError(f"{name}: answers of another page")
            kept = parse_answers(self._plan, path.read_bytes(), name).answers if path.exists() else {}
        except InputError as error:
            return _text(HTTPStatus.BAD_REQUEST, str(error))
        lost = [trial for trial, answer in kept.items() if sent.answers.get(trial) != answer]
        if lost:
            return _text(HTTPStatus.CONFLICT, f"{len(lost)} answers that are kept already are missing or different")
        if len(sent.answers) > len(kept):
            try:
                with replacing(path) as temporary:
                    temporary.write_bytes(content)
            except OSError as error:
                LOG.warning("%s: not kept: %s; pages keep their answers, and send them again", path, error.strerror)
                return _text(HTTPStatus.INSUFFICIENT_STORAGE, f"not kept: {error.strerror}")
        return _text(HTTPStatus.OK, "kept")


def _text(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", text.encode()
