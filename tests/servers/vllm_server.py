"""vLLM's OpenAI server on CPU, from the environment that `make test-models` sets up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PYTHON = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
READY_S = 300.0
STOP_S = 30.0
# Without TORCHDYNAMO_DISABLE the first log-probabilities take 25 s.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def environment(folder: Path) -> dict[str, str]:
    """Variables for vLLM on CPU that writes into the folder only."""
    places = {
        name: str(folder) for name in ("TMPDIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "TORCHINDUCTOR_CACHE_DIR")
    }
    return ENVIRONMENT | places


@contextmanager
def vllm_server(model: Path, *options: str) -> Iterator[str]:
    """Serve a model as `tiny` on a free port of this machine; yields the base URL and stops whatever was started."""
    with tempfile.TemporaryDirectory(prefix="vllm-") as kept:
        folder = Path(kept)  # a short path: vLLM puts sockets there
        log = folder / "log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), *options]
        with log.open("wb") as out:
            # In this process's group, so that what ends a whole run (Ctrl-C, `timeout`) ends the server too.
            server = psutil.Popen(command, stdout=out, stderr=out, env=os.environ | environment(folder))
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # be ended in order by `timeout` too
        try:
            _wait(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _stop(server)
            signal.signal(signal.SIGTERM, before)


def _wait(server: psutil.Popen, url: str, log: Path) -> None:
    """Wait until the server answers.

    Raises:
        RuntimeError: it ended, or took too long; with the last lines it wrote.
    """
    last = time.monotonic() + READY_S
    while server.poll() is None and time.monotonic() < last:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    what = "did not answer in time" if server.poll() is None else f"ended with {server.returncode}"
    raise RuntimeError(f"vLLM's server {what}\n{log.read_text(errors='replace')[-4000:]}")


def _stop(server: psutil.Popen) -> None:
    """Stop the server with all that it started."""
    family = [server, *server.children(recursive=True)] if server.is_running() else [server]
    server.terminate()
    _, left = psutil.wait_procs(family, timeout=STOP_S)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=STOP_S)
    try:
        server.wait(timeout=0)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"vLLM's server cannot be stopped: process {server.pid}") from error
