"""Faulty answers of the transport: packing, lengths, connections, redirects, statuses, waits."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from functools import cache

from tests.servers.faulty.kinds import CAP, KINDS, Kind, Meeting, drips, head, http, sends, whole

BOMB_BYTES = 2 << 30
"""What a bomb of 2 MB becomes when it is unpacked."""


@cache
def bomb(wbits: int) -> bytes:
    """Two gigabytes of spaces, packed: one flushed block again and again, as each begins with an empty dictionary."""
    pack = zlib.compressobj(9, zlib.DEFLATED, wbits)
    first = pack.compress(b" " * 8) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(b" " * (8 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return first + block * (BOMB_BYTES // (8 << 20))


# Packed answers.
for _name, _coding, _wbits in (("gzip", "gzip", 31), ("deflate", "deflate", 15)):
    sends(
        f"{_name}_bomb",
        "too_large",
        lambda m, c=_coding, w=_wbits: http("200 OK", bomb(w), f"Content-Encoding: {c}"),
    )
sends(
    "gzip_bomb_chunked",
    "too_large",
    lambda m: (
        head("Content-Encoding: gzip", "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n" % (len(bomb(31)), bomb(31))
    ),
    then="wait",
)
sends("gzip_bomb_as_an_error", "server_error", lambda m: http("500 No", bomb(31), "Content-Encoding: gzip"))
sends("gzip_bomb_as_html", "too_large", lambda m: http("200 OK", bomb(31), "Content-Encoding: gzip", kind="text/html"))
sends(
    "deflate_without_its_head", "malformed_response", lambda m: http("200 OK", bomb(-15), "Content-Encoding: deflate")
)
sends(
    "gzip_in_gzip",
    "wrong_content_type",
    lambda m: http("200 OK", gzip.compress(gzip.compress(whole(m))), "Content-Encoding: gzip, gzip"),
)
sends("gzip_that_is_none", "malformed_response", lambda m: http("200 OK", whole(m), "Content-Encoding: gzip"))
sends(
    "gzip_cut", "malformed_response", lambda m: http("200 OK", gzip.compress(whole(m))[:-60], "Content-Encoding: gzip")
)
for _coding in ("br", "zstd", "compress", "x-unheard-of"):
    sends(
        f"{_coding}_unasked",
        "wrong_content_type",
        lambda m, c=_coding: http("200 OK", b"\x28\xb5\x2f\xfd" + bytes(300), f"Content-Encoding: {c}"),
    )

# Lengths.
drips(
    "endless_chunks",
    "too_large",
    lambda m: head("Transfer-Encoding: chunked"),
    b"10000\r\n" + b" " * 65536 + b"\r\n",
    0,
    CAP >> 13,
)
drips("endless_without_length", "too_large", lambda m: head("Connection: close"), b" " * 65536, 0, CAP >> 13)
drips("a_byte_at_a_time", "timed_out", lambda m: head("Content-Length: 5000"), b" ", 0.05, 200)
drips("a_header_at_a_time", "timed_out", lambda m: b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n", 0.05, 90)
drips("continue_for_ever", "timed_out", lambda m: b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01, 2000)
drips("endless_headers", "connection_failed", lambda m: b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 1000, 0, 1000)
sends("a_terabyte_announced", "too_large", lambda m: head("Content-Length: 1000000000000"), then="wait")
sends("length_of_30_digits", "connection_failed", lambda m: head("Content-Length: 1" + "0" * 29), then="wait")
sends("length_negative", "connection_failed", lambda m: head("Content-Length: -1") + whole(m), then="close")
sends("length_in_words", "connection_failed", lambda m: head("Content-Length: many") + whole(m), then="close")
sends("length_too_long", "connection_failed", lambda m: head("Content-Length: 9999") + whole(m), then="close")
sends("length_too_short", "connection_failed", lambda m: head("Content-Length: 50") + whole(m))
sends("two_lengths", "connection_failed", lambda m: head("Content-Length: 5", "Content-Length: 900") + whole(m))
sends("chunk_size_in_words", "connection_failed", lambda m: head("Transfer-Encoding: chunked") + b"many\r\n{}\r\n")
sends(
    "chunk_size_of_30_digits", "connection_failed", lambda m: head("Transfer-Encoding: chunked") + b"f" * 30 + b"\r\n{}"
)
sends(
    "chunk_cut",
    "connection_failed",
    lambda m: head("Transfer-Encoding: chunked") + b"400\r\n" + whole(m),
    then="close",
)

# Connections that end, or do not.
sends("closed_at_once", "connection_failed", lambda m: b"", then="close")
sends("reset_at_once", "connection_failed", lambda m: b"", then="reset")
sends("closed_in_the_status", "connection_failed", lambda m: b"HTTP/1.1 20", then="close")
sends("reset_in_the_headers", "connection_failed", lambda m: b"HTTP/1.1 200 OK\r\nContent-Ty", then="reset")
sends("closed_in_the_body", "connection_failed", lambda m: http("200 OK", whole(m))[:-40], then="close")
sends("reset_in_the_body", "connection_failed", lambda m: http("200 OK", whole(m))[:-40], then="reset")
sends("silent", "timed_out", lambda m: b"", then="wait")
sends("silent_after_headers", "timed_out", lambda m: head("Content-Length: 500"), then="wait")
sends("silent_in_the_body", "timed_out", lambda m: http("200 OK", whole(m))[:-40], then="wait")

# What is no HTTP, or hardly.
sends("ssh", "connection_failed", lambda m: b"SSH-2.0-OpenSSH_9.6\r\n", then="close")
sends("tls_alert", "connection_failed", lambda m: b"\x15\x03\x01\x00\x02\x02\x46", then="close")
sends("http_2", "connection_failed", lambda m: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", then="close")
sends("body_only", "connection_failed", whole, then="close")
sends("status_in_words", "connection_failed", lambda m: b"HTTP/1.1 fine OK\r\n\r\n", then="close")
sends("huge_header", "connection_failed", lambda m: http("200 OK", whole(m), "X-Huge: " + "x" * CAP))
sends("control_characters_in_a_header", "connection_failed", lambda m: http("200 OK", whole(m), "X-A: a\x00b"))
sends("a_reason_phrase_of_garbage", "server_error", lambda m: http("500 \udcff\udcfe\x1b[31m", b"{}"))
sends(
    "switching_protocols",
    "wrong_content_type",
    lambda m: b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    then="close",
)
sends("early_hints", "answered", lambda m: b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + http("200 OK", whole(m)))
sends("two_responses", "answered", lambda m: http("200 OK", whole(m)) + http("200 OK", b'{"choices": []}'))

# Redirects. All of them point to another host, which must see nothing, unless the name says otherwise.
for _code in (300, 301, 302, 303, 304, 305, 306, 307, 308, 399):
    sends(
        f"redirect_{_code}",
        "redirected",
        lambda m, c=_code: http(f"{c} Elsewhere", b"", f"Location: {m.elsewhere}/v1/chat/completions?k=1"),
    )
sends("redirect_to_itself", "redirected", lambda m: http("307 Again", b"", f"Location: {m.here}/v1/chat/completions"))
sends("redirect_without_location", "redirected", lambda m: http("302 Somewhere"))
sends("redirect_to_nonsense", "redirected", lambda m: http("302 There", b"", "Location: http://[::"))
sends("redirect_to_a_script", "redirected", lambda m: http("302 There", b"", "Location: javascript:alert(1)"))
sends(
    "redirect_to_login",
    "redirected",
    lambda m: http("302 Found", b"<html>Log in", f"Location: {m.elsewhere}/login", kind="text/html"),
)
sends(
    "redirect_with_refresh",
    "wrong_content_type",
    lambda m: http(
        "200 OK",
        f'<meta http-equiv="refresh" content="0;url={m.elsewhere}">'.encode(),
        f"Refresh: 0; url={m.elsewhere}",
        kind="text/html",
    ),
)

# Statuses and waits.
sends("no_content", "wrong_content_type", lambda m: b"HTTP/1.1 204 No Content\r\n\r\n")
sends("partial_content", "malformed_response", lambda m: http("206 Partial Content", whole(m)[:60]))
sends("teapot", "bad_request", lambda m: http("418 I'm a teapot", b"short and stout", kind="text/plain"))
sends("status_520", "server_error", lambda m: http("520 Web server is down", b"<html>", kind="text/html"))
sends("status_999", "server_error", lambda m: http("999 Request denied", b""))
for _name, _wait in (
    ("a_year", "31536000"),
    ("negative", "-5"),
    ("of_5000_digits", "9" * 5000),
    ("nan", "nan"),
    ("words", "a while"),
    ("a_past_date", "Wed, 21 Oct 2015 07:28:00 GMT"),
    ("a_far_date", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ("no_date", "Wed, 99 Oct 99999 77:28:00 GMT"),
):
    sends(f"retry_after_{_name}", "rate_limited", lambda m, w=_wait: http("429 Slow down", b"{}", f"Retry-After: {w}"))

# The key, thrown back.
sends("key_in_the_reason", "server_error", lambda m: http(f"500 {m.key}", b"", "X-A: b"), then="keep")
sends("key_in_the_body", "bad_request", lambda m: http("400 Bad", json.dumps({"error": dict(m.headers)}).encode()))
sends(
    "key_in_the_location",
    "redirected",
    lambda m: http("302 F", b"", f"Location: {m.elsewhere}/?{m.key}"),
)
sends(
    "key_in_the_type",
    "wrong_content_type",
    lambda m: http("200 OK", b"", kind=f"text/{m.key}"),
)


async def _again_later(meeting: Meeting) -> None:
    await meeting.send(http("200 OK", whole(meeting)))
    await asyncio.sleep(0.05)
    await meeting.send(http("200 OK", whole(meeting)))


KINDS["two_responses_late"] = Kind("answered", _again_later)
