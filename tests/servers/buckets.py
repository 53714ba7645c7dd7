"""Google's and Azure's buckets on this machine: gcp-storage-emulator and Azurite, in processes of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AZURITE = Path(".venv-azurite/node_modules/.bin/azurite-blob").absolute()
"""Microsoft's emulator (MIT), which `make .venv-azurite/.made` installs by npm."""
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of Azurite's one account, which its documentation prints."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A server from its first connection on until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None, f"{command[0]} ended at once"
                    assert time.monotonic() < ends, f"{command[0]} does not answer"
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()


@contextmanager
def google(folder: Path) -> Iterator[dict[str, str]]:
    """An empty Google Cloud Storage; gives the environment of its clients."""
    port = free_port()
    start = "from gcp_storage_emulator.server import create_server; create_server('127.0.0.1', {}, True).run()"
    with running([sys.executable, "-c", start.format(port)], port):
        yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CLOUD_PROJECT": "test"}


@contextmanager
def azure(folder: Path) -> Iterator[dict[str, str]]:
    """An empty Azure Blob Storage; gives the environment of its clients."""
    port = free_port()
    command = [str(AZURITE), "--location", str(folder), "--blobPort", str(port), "--skipApiVersionCheck", "--silent"]
    with running(command, port):
        account = f"AccountName=devstoreaccount1;AccountKey={AZURE_KEY}"
        end = f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1"
        yield {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{account};{end};"}


def has_azurite() -> bool:
    """Whether Azurite and what runs it are there."""
    return AZURITE.is_file() and os.access(AZURITE, os.X_OK) and shutil.which("node") is not None
