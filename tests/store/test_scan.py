"""The search for secrets and personal data: what is found, what is let pass, what a finding shows."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import ConfigError
from earmark.schemas.tables import AUDIO, Table, column
from earmark.tasks.store.hub import PublishedFile
from earmark.tasks.store.publication import Finding, read_allowed, scan
from earmark.tasks.text.personal import Scanner, own_secrets

# Pieces, so that no scanner takes this file for a leak.
KEY = "A1b2C3d4E5f6" * 4
SECRETS = {
    "private key": "-----BEGIN RSA PRIVATE " + "KEY-----",
    "Hugging Face token": "hf_" + KEY[:34],
    "OpenAI or Anthropic key": "sk-proj-" + KEY[:30],
    "AWS key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "GitHub token": "ghp_" + KEY[:36],
    "GitLab token": "glpat-" + KEY[:20],
    "Google key": "AIza" + KEY[:35],
    "Slack token": "xoxb-" + KEY[:24],
    "Stripe key": "sk_live_" + KEY[:24],
    "PyPI token": "pypi-AgEI" + KEY + "abcdef",
    "JSON web token": f"eyJ{KEY[:12]}.eyJ{KEY[:12]}.{KEY[:12]}",
    "password in a URL": "postgresql://me:" + "hunter2@db.lab/x",
    "password or key": "API_KEY = '" + KEY[:16] + "'",
    "bearer token": "Authorization: Bearer " + KEY[:24],
    "e-mail address": "ann.lee@mail.org",
    "phone number": "+49 170 1234567",
    "IP address": "84.22.31.9",
}
INNOCENT = [
    hashlib.sha256(b"x").hexdigest(),
    "4e7f0a1b2c3d4e5f",
    "be68539007547034",
    "4242424242424242",
    '"bytes": 2025550199,',
    "num_bytes: 2025550199",
    "vmc23/sys64e2f-utt0001234.wav",
    "a scale from 1.0 to 5.0, gap 0.25, +3.25 dB, -12.125, 1e+10",
    "versions 4.1.2.0 and 10.20.30.40",
    "2026-01-02T03:04:05+00:00",
    "20260102-030405-ab12",
    "cover@2x.png by noreply@example.com, git@example.org",
    "sk-learn, risk-averse-and-very-cautious-people",
    "http://127.0.0.1:8000/v1 and https://example.org/a:b@c",
    "password: correct horse",
    "call it bars 55-123 tonight",
    "192.168.0.1 and 127.0.0.1, ::1",
    "utt_123-456-7890.wav",
    "12:34:56:78 aa:bb:cc:dd:ee:ff",
    "@artist plays 120 bpm",
    "R+B 1999+2000 12345678901234567890",
]


@pytest.mark.parametrize(("kind", "text"), SECRETS.items())
def test_found(kind: str, text: str) -> None:
    for around in ("{}", "see {} here", '"{}",', "({})", "first line\n{}\nlast"):
        assert kind in [found for found, _ in Scanner().findings(around.format(text))], around


@pytest.mark.parametrize("text", INNOCENT)
def test_let_pass(text: str) -> None:
    assert list(Scanner().findings(text)) == []


@pytest.mark.parametrize(
    "text", ["(555) 123-4567", "call 555-123-4567.", "call 555-0123 tonight", "+1 (555) 123-4567", "+442071838750"]
)
def test_phone_numbers(text: str) -> None:
    assert {kind for kind, _ in Scanner().findings(text)} == {"phone number"}


@pytest.mark.parametrize("text", ["2001:4860:4860::8888", "from 2001:4860:4860:0:0:0:0:8844, twice"])
def test_long_addresses(text: str) -> None:
    assert [kind for kind, _ in Scanner().findings(text)] == ["IP address"]


@given(st.lists(st.sampled_from([*SECRETS.values(), *INNOCENT, " ", "a", "+", "-", ".", "7", "@", ":"]), max_size=6))
def test_the_hint_misses_nothing(parts: list[str]) -> None:
    text = "".join(parts)
    if list(Scanner().findings(text)):
        assert re.search(Scanner().hint, text)


def test_the_hint_is_read_by_duckdb() -> None:
    with duckdb.connect() as connection:
        for text in SECRETS.values():
            found = connection.execute("SELECT regexp_matches($text, $hint)", {"text": text, "hint": Scanner().hint})
            assert found.fetchall() == [(True,)], text


@pytest.mark.slow
def test_ids_are_nobodys() -> None:
    """Hashes and numbers of which a large corpus has a million: none may stop its publication."""
    digests = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(3_000)]
    numbers = [str(int(digest, 16)) for digest in digests]
    ids = [part for digest in digests for part in (digest, digest[:16], digest[:12], digest[:32])]
    ids += [part for number in numbers for part in (number[:10], number[:16], f'"bytes": {number[:10]},')]
    picked = "SELECT text FROM (SELECT unnest($ids) AS text) WHERE regexp_matches(text, $hint)"
    with duckdb.connect() as connection:
        texts = connection.execute(picked, {"ids": ids, "hint": Scanner().hint}).fetchall()
    assert [text for (text,) in texts if list(Scanner().findings(text))] == []


def test_own_secrets() -> None:
    environment = {
        "HF_TOKEN": "0123456789ab",
        "OPENAI_API_KEY": "k" * 20,
        "SHORT_TOKEN": "abc",
        "HOME": "/home/someone",
    }
    assert set(own_secrets(environment)) == {"HF_TOKEN", "OPENAI_API_KEY"}
    found = list(Scanner(own_secrets(environment)).findings("x 0123456789ab y"))
    assert found == [("the value of HF_TOKEN", "0123456789ab")]


TABLE = Table(
    name="clips",
    description="Clips.",
    schema=pa.schema(
        [
            column("clip", pa.string(), "Its name."),
            column("text", pa.string(), "Words.", optional=True),
            column("tags", pa.list_(pa.string()), "Tags.", optional=True),
            column("audio", AUDIO, "The clip.", optional=True),
            column("mos", pa.float64(), "A number."),
        ]
    ),
    key=("clip",),
)


def findings(folder: Path, rows: list[dict[str, object]], **texts: str) -> list[Finding]:
    """What is found in a table and in text files."""
    path = folder / "clips.parquet"
    pq.write_table(pa.Table.from_pylist(rows, TABLE.schema), path)
    entries = [PublishedFile("clips/train-00000-of-00001.parquet", path, "", 0)]
    for name, text in texts.items():
        (folder / name).write_text(text)
        entries.append(PublishedFile(f"{name}.md", folder / name, "", 0))
    return list(scan(entries, [TABLE], Scanner(), {}, lambda count: None))


def row(clip: str, **values: object) -> dict[str, object]:
    return {"clip": clip, "text": "a tune", "tags": ["calm"], "audio": None, "mos": 3.0, **values}


def test_finding_names_the_place_and_not_the_thing(tmp_path: Path) -> None:
    mail = SECRETS["e-mail address"]
    rows = [
        row("a"),
        row("b", text=f"by {mail}"),
        row("c", tags=["calm", mail]),
        row(mail),
        row("d", audio={"bytes": mail.encode(), "path": f"{mail}.wav"}),
        row("e", audio={"bytes": mail.encode(), "path": "x.wav"}),
    ]
    found = findings(tmp_path, rows, card=f"one\ntwo {mail}\n")
    assert {finding.kind for finding in found} == {"e-mail address"}
    assert [finding.where for finding in found[:3]] == [
        "clips.text, clip b",
        "clips.tags, clip c",
        "clips.clip, row 4 of clips.parquet",
    ]
    assert "clips.audio, clip d" not in [finding.where for finding in found], ".wav is no host"
    assert found[-1].where == "card.md, line 2"
    assert not [finding for finding in found if mail in str(finding)]
    assert len({finding.mark for finding in found}) == 1


def test_read_allowed(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.txt"
    path.write_text("# by Ann\n\n0123456789abcdef she agreed\n")
    assert read_allowed(path) == {"0123456789abcdef": "she agreed"}
    path.write_text("0123456789abcdef\n")
    with pytest.raises(ConfigError, match="line 1: expected the 16 digits of a finding and a reason"):
        read_allowed(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_allowed(tmp_path / "none.txt")
