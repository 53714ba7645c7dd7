"""What `earmark doctor` looks at: the installation, the store, the services and keys that a build may need."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from earmark.schemas.errors import how_to_install
from earmark.schemas.instruction_rubrics import has_chromaprint
from earmark.tasks.store.versions import Store

CORE = ("prefect", "pyarrow", "duckdb", "pandas", "datasets", "huggingface_hub", "openai", "google-genai", "soundfile")
EXTRAS = {
    "audio": ("torch", "audio-separator", "transformers", "torchcodec"),
    "cuda": ("torchaudio", "vllm"),
    "scale": ("psycopg", "s3fs"),
    "gs": ("gcsfs",),
    "az": ("adlfs",),
    "ray": ("prefect-ray", "ray"),
    "view": ("nicegui",),
}
KEYS = {
    "OPENAI_API_KEY": "OpenAI's API",
    "GEMINI_API_KEY": "Gemini's API",
    "GOOGLE_API_KEY": "Gemini's API, in place of GEMINI_API_KEY",
    "HF_TOKEN": "publishing to the Hugging Face Hub",
}
LITTLE_SPACE_GB = 5


@dataclass(frozen=True)
class Finding:
    """One check: fine, optional and missing, or bad; `detail` is a release, or how to mend it."""

    what: str
    state: Literal["ok", "off", "bad"]
    detail: str


def examine(store: Store) -> list[Finding]:
    """Look at everything; nothing is changed."""
    keys = [_optional(name, os.environ.get(name), "set", f"not set; for {use}") for name, use in KEYS.items()]
    return [*_installation(), *_store(store), _prefect(), *keys, _key_hosts()]


def _installation() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    ffmpeg = shutil.which("ffmpeg") or ""
    by_hash = "not found (Debian: libchromaprint1); instruction-rubrics compares clips by hash, not by sound"
    return [
        Finding("Python", "ok" if sys.version_info >= (3, 11) else "bad", python),
        _packages("core", CORE, "bad", "make setup"),
        *(_packages(f"extra {one}", names, "off", how_to_install(one)) for one, names in EXTRAS.items()),
        _optional("ffmpeg", ffmpeg, ffmpeg, "not found; M4A audio and separation need it"),
        _optional("Chromaprint", has_chromaprint(), "instruction-rubrics compares recordings by sound", by_hash),
        _optional("GPU", shutil.which("nvidia-smi"), "NVIDIA driver found", "none found; everything runs without one"),
    ]


def _packages(what: str, names: Sequence[str], lacking: Literal["off", "bad"], command: str) -> Finding:
    releases = {name: _release(name) for name in names}
    if absent := [name for name, release in releases.items() if release is None]:
        return Finding(what, lacking, f"not installed: {', '.join(absent)}; run: {command}")
    return Finding(what, "ok", ", ".join(f"{name} {release}" for name, release in releases.items()))


def _optional(what: str, there: object, detail: str, without: str) -> Finding:
    return Finding(what, "ok", detail) if there else Finding(what, "off", without)


def _store(store: Store) -> list[Finding]:
    existing = next(folder for folder in (store.root.absolute(), *store.root.absolute().parents) if folder.exists())
    writable = os.access(existing, os.W_OK)
    free = shutil.disk_usage(existing).free / 1e9
    counts = [f"{name}: {len(store.versions(name))}" for name in store.corpora()]
    counted = "versions: " + ", ".join(counts) if counts else "no versions yet"
    there = f"{store.address} ({counted})"
    return [
        Finding("store", "ok", there) if writable else Finding("store", "bad", f"{existing} is not writable"),
        _ledger(store),
        Finding("disk", "ok" if free > LITTLE_SPACE_GB else "bad", f"{free:,.0f} GB free at {existing}"),
    ]


def _ledger(store: Store) -> Finding:
    from earmark.schemas.errors import EarmarkError
    from earmark.tasks.annotation.ledger_reports import stats
    from earmark.tasks.build.ledger import has_ledger, ledger_address

    if not has_ledger(store):
        return Finding("ledger", "off", "none yet; the first build that asks a model creates it")
    try:
        counts = stats(ledger_address(store))
    except EarmarkError as error:
        return Finding("ledger", "bad", str(error))
    answered = sum(model["answered"] for model in counts["models"].values())
    return Finding("ledger", "ok", f"{counts['ledger']}: {answered:,} answers, {counts['bytes']:,} bytes")


def _prefect() -> Finding:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        detail = "no server set (PREFECT_API_URL); builds start one, which stays five minutes after the last"
        return Finding("Prefect", "off", detail)
    try:
        urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=3).close()
        with urllib.request.urlopen(f"{url.rstrip('/')}/admin/version", timeout=3):
            open_to_all = "needs no password, so any page in a browser can start runs; set"
            return Finding("Prefect", "bad", f"server at {url} {open_to_all} PREFECT_SERVER_API_AUTH_STRING for it")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return Finding("Prefect", "ok", f"server at {url}; it needs a password")
        return Finding("Prefect", "bad", f"server at {url} answers {error.code}")
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Finding("Prefect", "bad", f"no answer from {url}: {reason}")


def _key_hosts() -> Finding:
    """Which further hosts keys may go to, by the environment."""
    from earmark.schemas.errors import ConfigError
    from earmark.tasks.annotation.keys import PROVIDERS, VARIABLE, key_hosts

    try:
        bound = key_hosts()
    except ConfigError as error:
        return Finding(VARIABLE, "bad", str(error))
    usual = key_hosts({})
    further = [
        f"{name} to {', '.join(sorted(map(str, more)))}{'' if os.environ.get(name) else ' (not set)'}"
        for name, origins in bound.items()
        if (more := origins - usual.get(name, frozenset()))
    ]
    if not further:
        return Finding(VARIABLE, "off", f"not set; keys go to {' and '.join(sorted(set(PROVIDERS.values())))} alone")
    return Finding(VARIABLE, "ok", "; ".join(further))


def _release(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
