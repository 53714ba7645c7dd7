"""Open buckets with the variables and credential files of each cloud's own client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from configparser import ConfigParser, Error
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from earmark.schemas.errors import EarmarkError

KEYS = {
    "s3": "the keys in AWS_… variables",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or `gcloud auth application-default login`",
    "az": "the AZURE_STORAGE_… variables or `az login`",
}
"""Places of a user's keys, for messages."""
RETRIES = {
    "max_retries": 4,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
WAITS = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "1h"}  # connecting; waiting for bytes; one request
_AMAZONS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_GOOGLES_SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"


class _Access(TypedDict, total=False):
    config: dict[str, Any]
    credential_provider: Callable[[], Any]


def open_bucket(kind: str, name: str, fault: type[EarmarkError]) -> Any:
    """Return the client of a bucket or container; it reads further variables of the environment itself.

    Raises:
        EarmarkError: (as `fault`) the environment names no account, or names it incompletely.
    """
    access = {"s3": _amazon, "gs": _google, "az": _azure}[kind](fault)
    made: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[kind]
    options: dict[str, Any] = {**WAITS, "allow_http": _is_plain(access.get("config", {}))}
    if kind == "gs":
        options["default_headers"] = {"Accept-Encoding": "gzip"}  # else Google decodes, and bytes are not the object's
    try:
        return made(name, client_options=options, retry_config=RETRIES, **access)
    except (BaseError, ValueError) as error:
        raise fault(f"{kind}://{name}: {str(error).splitlines()[0]}; check {KEYS[kind]}") from None


def _is_plain(config: dict[str, Any]) -> bool:
    endpoints = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"))
    return any(url.startswith("http://") for url in (*endpoints, *map(str, config.values())))


def _amazon(fault: type[EarmarkError]) -> _Access:
    """Return the keys, region and endpoint of a profile, unless the environment has keys. boto3 renews roles and single
    sign-on."""
    for variable in map(str.upper, _AMAZONS_KEYS):
        if not os.environ.get(variable, "").isprintable():  # the client would break off with a page of frames
            raise fault(f"{variable}: expected a key, found one with a line end or control sign; set it without")
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    name, profile = os.environ.get("AWS_PROFILE", "default"), dict[str, str]()
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        path = Path(os.environ.get(variable) or f"~/.aws/{file}").expanduser()
        parser = ConfigParser(interpolation=None, default_section="")
        try:
            parser.read(path, "utf-8")
        except (Error, UnicodeDecodeError):
            raise fault(f"{path}: expected profiles of AWS, found another text") from None
        profile |= dict(parser[section]) if parser.has_section(section) else {}
    if not profile and name != "default":
        raise fault(f"AWS_PROFILE: found no profile '{name}' in ~/.aws/config and ~/.aws/credentials")
    config: dict[str, Any] = {key: value for key, value in profile.items() if key in _AMAZONS_KEYS}
    if "region" in profile and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & os.environ.keys():
        config["region"] = profile["region"]
    if "endpoint_url" in profile and not {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} & os.environ.keys():
        config["endpoint"] = profile["endpoint_url"]
    renewed = [key for key in profile if key.startswith(("sso_", "role_arn", "credential_process", "login_session"))]
    if not renewed or "aws_access_key_id" in config:
        return {"config": config}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise fault(
            f"AWS profile '{name}' gets keys by {renewed[0]}: install boto3 beside Earmark, which renews them, or "
            'run eval "$(aws configure export-credentials --format env)"'
        ) from None
    return {"config": config, "credential_provider": Boto3CredentialProvider()}


def _google(fault: type[EarmarkError]) -> _Access:
    """Return Google's default credentials of any kind; without any, access to public objects."""
    if emulator := os.environ.get("STORAGE_EMULATOR_HOST"):
        address = emulator if "://" in emulator else f"http://{emulator}"
        return {
            "config": {"base_url": address},
            "credential_provider": lambda: {"token": "emulator", "expires_at": None},
        }
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError
    from obstore.auth.google import GoogleCredentialProvider

    try:
        credentials, _ = google.auth.default(scopes=[_GOOGLES_SCOPE])
    except DefaultCredentialsError as error:
        if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise fault(f"GOOGLE_APPLICATION_CREDENTIALS: {str(error).splitlines()[0]}") from None
        return {"config": {"skip_signature": True}}
    return {"credential_provider": GoogleCredentialProvider(credentials)}


def _azure(fault: type[EarmarkError]) -> _Access:
    """Return the account of a connection string, unread by the client, or the login of `az login`."""
    if written := os.environ.get("AZURE_STORAGE_CONNECTION_STRING"):
        given = dict(part.strip().partition("=")[::2] for part in written.split(";") if part.strip())
        if given.get("UseDevelopmentStorage") == "true":
            return {"config": {"use_emulator": True}}
        names = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_key",
                 "BlobEndpoint": "endpoint"}  # fmt: skip
        config: dict[str, Any] = {name: given[key] for key, name in names.items() if given.get(key)}
        if "account_name" not in config:  # strings with a signature have an endpoint alone
            if "endpoint" not in config:
                raise fault("AZURE_STORAGE_CONNECTION_STRING: expected AccountName or BlobEndpoint, found neither")
            host, _, path = config["endpoint"].partition("://")[2].partition("/")
            config["account_name"] = path.strip("/") or host.partition(".")[0]
        elif "endpoint" not in config and (suffix := given.get("EndpointSuffix")):
            protocol = given.get("DefaultEndpointsProtocol", "https")
            config["endpoint"] = f"{protocol}://{config['account_name']}.blob.{suffix}"
        return {"config": config}
    if not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise fault("az://: set AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING")
    if os.environ.get("AZURE_STORAGE_ANON", "false").lower() not in ("false", "0", "f", ""):
        return {"config": {"skip_signature": True}}
    login = Path(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure").expanduser() / "azureProfile.json"
    return {"config": {"use_azure_cli": True}} if login.is_file() and shutil.which("az") else {}
