"""Check the installation, the store, and the services and keys of builds, for `earmark doctor`."""

import http.client
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from earmark.flows.command.prefect_server import DATABASE, check_database, home
from earmark.schemas.errors import ConfigError, DiskError, how_to_install
from earmark.schemas.instruction_rubrics import has_chromaprint
from earmark.schemas.places import without_user
from earmark.tasks.store.versions import Store

CORE = (
    "prefect",
    "pyarrow",
    "duckdb",
    "pandas",
    "datasets",
    "huggingface_hub",
    "obstore",
    "openai",
    "google-genai",
    "soundfile",
)
EXTRAS = {
    "models": ("torch", "transformers", "torchcodec", "onnxruntime"),
    "separation": ("audio-separator", "torch"),
    "scale": ("psycopg",),
    "ray": ("prefect-ray", "ray"),
    "litellm": ("litellm",),
    "scores": ("verovio", "resvg-py"),
}
KEYS = {
    "OPENAI_API_KEY": "OpenAI's API",
    "GEMINI_API_KEY": "Gemini's API",
    "GOOGLE_API_KEY": "Gemini's API, in place of GEMINI_API_KEY",
    "HF_TOKEN": "publishing to the Hugging Face Hub",
}
LITTLE_SPACE_GB = 5
VLLM_FOLDER = "~/earmark-vllm"
VLLM_SETUP = (f"python3 -m venv {VLLM_FOLDER}", f"{VLLM_FOLDER}/bin/pip install 'vllm[audio]>=0.32'")
"""Commands creating the environment of `vllm:` annotators; pins would age, and the tests run with 0.32."""
ROWS = 20  # first rows of each source read to find a build's kinds of questions


@dataclass(frozen=True)
class CheckResult:
    """A check's result: fine, optional and missing, or bad; `detail` is a release, or the remedy."""

    what: str
    state: Literal["ok", "off", "bad"]
    detail: str


def examine(store: Store) -> list[CheckResult]:
    """Run all checks; change nothing."""
    keys = [_optional(name, os.environ.get(name), "set", f"not set; for {use}") for name, use in KEYS.items()]
    return [*_installation(), *_store(store), _prefect(), *keys, _key_hosts()]


def probe_models(path: Path, store: Store) -> list[CheckResult]:
    """Send each model of a build config one tiny request of each kind in the build; keep no answer."""
    from earmark.flows.command.running import read_config
    from earmark.schemas.registry import load
    from earmark.schemas.toml import read_toml
    from earmark.tasks.annotation.probing import probe
    from earmark.tasks.pipeline.forecast import show_questions
    from earmark.tasks.pipeline.progress import say, shown
    from earmark.tasks.pipeline.registry import find_corpus

    corpus = find_corpus(str(read_toml(path).get("corpus", "")))
    config = read_config(corpus, path, limit=ROWS)
    findings, count, looked = [], 0, set[tuple[str, str | None]]()
    with shown():
        questions = show_questions(corpus, load(corpus.flow).story, config, store, 1)
        for role, annotator in config.asked().items():
            requests = [one.request for one in questions if one.role == role]
            say(f"probe {role}, {annotator.annotator}")
            server = annotator.annotator, annotator.base_url
            for one in probe(annotator, requests, server=server not in looked):
                count += one.requests
                detail = one.detail if requests else f"{one.detail}; none of the first {ROWS} rows is asked about"
                findings.append(CheckResult(f"{role} ({annotator.annotator}): {one.about}", one.state, detail))
            looked.add(server)
    return [*findings, CheckResult("probe", "ok", f"{count} requests to models; none of them is kept in the ledger")]


def _installation() -> list[CheckResult]:
    python = ".".join(map(str, sys.version_info[:3]))
    ffmpeg = shutil.which("ffmpeg") or ""
    by_hash = "not found (Debian: libchromaprint1); instruction-rubrics compares clips by hash, not by sound"
    return [
        CheckResult("Python", "ok" if sys.version_info >= (3, 11) else "bad", python),
        _packages("core", CORE, "bad", "make setup"),
        *(_packages(f"extra {one}", names, "off", how_to_install(one)) for one, names in EXTRAS.items()),
        _vllm(),
        _optional("ffmpeg", ffmpeg, ffmpeg, "not found; separation by audio-separator needs it"),
        _optional("Chromaprint", has_chromaprint(), "instruction-rubrics compares recordings by sound", by_hash),
        _optional("GPU", shutil.which("nvidia-smi"), "NVIDIA driver found", "none found; everything runs without one"),
    ]


def _vllm() -> CheckResult:
    """Report the vLLM release in its own environment."""
    from earmark.tasks.annotation.vllm_serve import VARIABLE, python_of_vllm

    if not os.environ.get(VARIABLE):
        return CheckResult("vLLM", "off", f"{VARIABLE} not set; for vllm: annotators; run: earmark doctor --vllm")
    try:
        python = str(python_of_vllm())
        look = [python, "-c", "from importlib.metadata import version; print(version('vllm'))"]
        ended = subprocess.run(look, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (ConfigError, OSError, subprocess.TimeoutExpired) as error:
        return CheckResult("vLLM", "bad", " ".join(str(error).split()))
    if ended.returncode:
        return CheckResult("vLLM", "bad", f"not installed beside {python} ({VARIABLE}); run: earmark doctor --vllm")
    return CheckResult("vLLM", "ok", f"{ended.stdout.strip()}, by {python}")


def _packages(what: str, names: Sequence[str], lacking: Literal["off", "bad"], command: str) -> CheckResult:
    releases = {name: _release(name) for name in names}
    if absent := [name for name, release in releases.items() if release is None]:
        return CheckResult(what, lacking, f"not installed: {', '.join(absent)}; run: {command}")
    return CheckResult(what, "ok", ", ".join(f"{name} {release}" for name, release in releases.items()))


def _optional(what: str, there: object, detail: str, without: str) -> CheckResult:
    return CheckResult(what, "ok", detail) if there else CheckResult(what, "off", without)


def _store(store: Store) -> list[CheckResult]:
    existing = next(folder for folder in (store.root.absolute(), *store.root.absolute().parents) if folder.exists())
    writable = os.access(existing, os.W_OK)
    free = shutil.disk_usage(existing).free / 1e9
    counts = [f"{name}: {len(store.versions(name))}" for name in store.corpora()]
    counted = "versions: " + ", ".join(counts) if counts else "no versions yet"
    there = f"{store.address} ({counted})"
    return [
        CheckResult("store", "ok", there) if writable else CheckResult("store", "bad", f"{existing} is not writable"),
        _ledger(store),
        CheckResult("disk", "ok" if free > LITTLE_SPACE_GB else "bad", f"{free:,.0f} GB free at {existing}"),
    ]


def _ledger(store: Store) -> CheckResult:
    from earmark.schemas.errors import EarmarkError
    from earmark.tasks.annotation.ledger_reports import stats
    from earmark.tasks.store.versions import has_ledger, ledger_address

    if not has_ledger(store):
        return CheckResult("ledger", "off", "none yet; the first build that asks a model creates it")
    try:
        counts = stats(ledger_address(store))
    except EarmarkError as error:
        return CheckResult("ledger", "bad", str(error))
    answered = sum(model["answered"] for model in counts["models"].values())
    return CheckResult("ledger", "ok", f"{counts['ledger']}: {answered:,} answers, {counts['bytes']:,} bytes")


def _prefect() -> CheckResult:
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        folder = home()
        try:
            check_database(folder / DATABASE)
        except DiskError as error:
            return CheckResult("Prefect", "bad", str(error))
        detail = (
            f"no server set (PREFECT_API_URL); builds start one in {folder}, which stays five minutes after the last"
        )
        return CheckResult("Prefect", "off", detail)
    try:
        url = without_user("PREFECT_API_URL", url)
        urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=3).close()
        with urllib.request.urlopen(f"{url.rstrip('/')}/admin/version", timeout=3):
            open_to_all = "needs no password, so any page in a browser can start runs; set"
            return CheckResult("Prefect", "bad", f"server at {url} {open_to_all} PREFECT_SERVER_API_AUTH_STRING for it")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return CheckResult("Prefect", "ok", f"server at {url}; it needs a password")
        return CheckResult("Prefect", "bad", f"server at {url} answers {error.code}")
    except ConfigError as error:
        return CheckResult("Prefect", "bad", str(error))
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return CheckResult("Prefect", "bad", f"no answer from {url}: {reason}")


def _key_hosts() -> CheckResult:
    """Report further hosts allowed to receive keys, from the environment."""
    from earmark.tasks.annotation.keys import PROVIDERS, VARIABLE, key_hosts

    try:
        bound = key_hosts()
    except ConfigError as error:
        return CheckResult(VARIABLE, "bad", str(error))
    usual = key_hosts({})
    further = [
        f"{name} to {', '.join(sorted(map(str, more)))}{'' if os.environ.get(name) else ' (not set)'}"
        for name, origins in bound.items()
        if (more := origins - usual.get(name, frozenset()))
    ]
    if not further:
        return CheckResult(
            VARIABLE, "off", f"not set; keys go to {' and '.join(sorted(set(PROVIDERS.values())))} alone"
        )
    return CheckResult(VARIABLE, "ok", "; ".join(further))


def _release(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
