"""Keys of buckets are read from the settings of each cloud, or one line says why not."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import StoreError
from earmark.tasks.store import bucket_objects
from earmark.tasks.store.objects import first_words, waited

OURS = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "CLOUDSDK_")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without keys, and an environment without any."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


def config(kind: str) -> dict[str, Any]:
    """Return the options of the client for a bucket of that kind."""
    access = {"s3": bucket_objects._amazon, "az": bucket_objects._azure, "gs": bucket_objects._google}[kind](StoreError)
    return access.get("config", {})


def test_a_profile_gives_keys_region_and_endpoint(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = 1%2\n[lab]\naws_access_key_id = a\n"
        "aws_secret_access_key = b\naws_session_token = c\n"
    )
    (home / ".aws/config").write_text(
        "[profile lab]\nregion = eu-west-1\nendpoint_url = http://host:9\ns3 =\n  x = y\n"
    )
    assert config("s3") == {"aws_access_key_id": "d", "aws_secret_access_key": "1%2"}
    monkeypatch.setenv("AWS_PROFILE", "lab")
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c"}
    assert config("s3") == {**keys, "region": "eu-west-1", "endpoint": "http://host:9"}
    bucket_objects.open_bucket("s3", "lab", StoreError)  # which takes all of it
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://elsewhere")
    assert config("s3") == keys
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    assert config("s3") == {}


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("[profile lab]\nsso_session = x\n", "AWS profile 'lab' gets keys by sso_session: install boto3"),
        ("[profile lab]\nrole_arn = arn\nsource_profile = y\n", "gets keys by role_arn: install boto3"),
        ("[profile other]\nregion = x\n", "AWS_PROFILE: found no profile 'lab'"),
        ("no profile at all", "expected profiles of AWS"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(
    profile: str, said: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".aws/config").write_text(profile)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)  # as where boto3 is not installed
    with pytest.raises(StoreError, match=said) as told:
        bucket_objects.open_bucket("s3", "lab", StoreError)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5MQ==;EndpointSuffix=core.windows.net",
            {"account_name": "me", "account_key": "a2V5MQ==", "endpoint": "https://me.blob.core.windows.net"},
        ),
        (
            "BlobEndpoint=https://me.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D",
            {"account_name": "me", "sas_key": "sv=1&sig=x%3D", "endpoint": "https://me.blob.core.windows.net/"},
        ),
        ("UseDevelopmentStorage=true", {"use_emulator": True}),
    ],
)
def test_a_connection_string_is_read(written: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", written)
    assert config("az") == expected
    bucket_objects.open_bucket("az", "lab", StoreError)


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_a_key_with_a_line_end_is_one_line_without_the_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "hidden"}
    for name, value in {**keys, variable: "hidden\n"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=f"^{variable}: .*line end") as fault:
        bucket_objects.open_bucket("s3", "bucket", StoreError)
    assert "hidden" not in str(fault.value)


def test_an_azure_without_an_account_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match=r"^az://: set AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING$"):
        config("az")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=geheim")
    with pytest.raises(StoreError, match="expected AccountName or BlobEndpoint, found neither"):
        config("az")
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    assert config("az") == {}
    monkeypatch.setenv("AZURE_STORAGE_ANON", "true")
    assert config("az") == {"skip_signature": True}


def test_google_without_keys_reads_what_anybody_may_and_says_when_keys_are_broken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # no machine of Google's is asked for
    assert config("gs") == {"skip_signature": True}
    (home / "key.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "key.json"))
    with pytest.raises(StoreError, match=r"^GOOGLE_APPLICATION_CREDENTIALS: ") as told:
        config("gs")
    assert "\n" not in str(told.value)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:1")
    assert config("gs") == {"base_url": "http://localhost:1"}


def test_a_stopped_command_does_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        client = bucket_objects.open_bucket("s3", "lab", StoreError)
        returned = threading.Event()

        def ask() -> None:
            try:
                client.head("x")
            finally:
                returned.set()

        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            waited(ask)
        assert not returned.is_set()


def test_no_query_of_a_request_is_repeated() -> None:
    said = (
        "Generic error: Error performing GET http://h/lab?sv=1&sig=geheim in 1ms - HTTP error\n\nDebug source:\ngeheim"
    )
    assert first_words(ValueError(said)) == "Generic error: Error performing GET http://h/lab in 1ms - HTTP error"
    answer = "Error - Server returned non-2xx status code: 403 Forbidden: <Code>No</Code><Message>At\nall</Message>"
    assert first_words(ValueError(answer)) == "403 Forbidden: No: At"
