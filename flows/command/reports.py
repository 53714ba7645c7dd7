"""Serve the reports of a store's versions to holders of the page's password, so that an artifact can link to them."""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from earmark.schemas.places import CORPUS, VERSION
from earmark.tasks.store.files import no_link
from earmark.tasks.store.manifest import REPORT
from earmark.tasks.store.versions import Store

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

PREFIX = "/reports"
_PLACE = re.compile(rf"{PREFIX}/(?P<corpus>{CORPUS.pattern})/(?P<version>{VERSION.pattern})")
_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    # A pulled version's page and its own policy are a stranger's: its scripts get no origin and reach nothing.
    (
        "Content-Security-Policy",
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data: blob:; frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    ),
]


def with_reports(app: "WSGIApplication", store: Store, password: str) -> "WSGIApplication":
    """Return an application with reports at `/reports/CORPUS/vN`, read-only and for holders of USER:PASSWORD alone."""

    def answered(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if not path.startswith(f"{PREFIX}/"):
            return app(environ, start_response)
        if not hmac.compare_digest(_credentials(environ.get("HTTP_AUTHORIZATION", "")), password.encode()):
            start_response("401 Unauthorized", [_TEXT, ("WWW-Authenticate", 'Basic realm="Earmark", charset="UTF-8"')])
            return [b"the password of Prefect's page opens reports\n"]
        place = _PLACE.fullmatch(path)
        report = _report(store, place["corpus"], place["version"]) if place else None
        if report is None or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [_TEXT])
            return [b"no report here\n"]
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(report)))])
        return [report] if environ["REQUEST_METHOD"] == "GET" else []

    return answered


def _credentials(header: str) -> bytes:
    kind, _, given = header.partition(" ")
    try:
        return base64.b64decode(given, validate=True) if kind.lower() == "basic" else b""
    except binascii.Error:
        return b""


def _report(store: Store, corpus: str, name: str) -> bytes | None:
    """Return a version's report; None if there is no such version, or its report is not kept."""
    for version in store.versions(corpus):
        entries = [entry for entry in version.manifest.files if entry.path == REPORT]
        if version.name == name and entries:
            if store.remote is not None:
                store.remote.fetch(version.manifest, version.folder, entries)
            return no_link(version.folder, REPORT).read_bytes()
    return None
