"""Read and write objects in buckets: `s3://` (Amazon and compatible stores), `gs://` (Google), `az://` (Azure)."""

from __future__ import annotations

import mimetypes
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from configparser import ConfigParser, Error
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.places import BUCKETS
from earmark.tasks.store.objects import BLOCK_BYTES, Object, at_once, first_words, waited

if TYPE_CHECKING:
    from obstore import ObjectMeta

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
    """Return the client of a bucket or container; it reads further variables of the environment itself."""
    access = {"s3": _amazon, "gs": _google, "az": _azure}[kind](fault)
    made: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[kind]
    options: dict[str, Any] = {**WAITS, "allow_http": _is_plain(access.get("config", {}))}
    if kind == "gs":  # else Google decodes, and bytes are not the object's
        options |= {"default_headers": {"Accept-Encoding": "gzip"}}
    try:
        return made(name, client_options=options, retry_config=RETRIES, **access)
    except (BaseError, ValueError) as error:
        raise fault(f"{kind}://{name}: {str(error).splitlines()[0]}; check {KEYS[kind]}") from None


def _is_plain(config: dict[str, Any]) -> bool:
    endpoints = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"))
    return any(url.startswith("http://") for url in (*endpoints, *map(str, config.values())))


def _amazon(fault: type[EarmarkError]) -> _Access:
    """Return a profile's keys, region and endpoint, unless the environment has keys. boto3 renews roles and SSO."""
    for variable in map(str.upper, _AMAZONS_KEYS):
        if not os.environ.get(variable, "").isprintable():  # the client would break off with a page of frames
            raise fault(f"{variable}: expected a key, found one with a line end or control sign; set it without")
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    name = os.environ.get("AWS_PROFILE", "default")
    profile: dict[str, str] = {}
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
    config: dict[str, str] = {key: value for key, value in profile.items() if key in _AMAZONS_KEYS}
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
        config: dict[str, str] = {name: given[key] for key, name in names.items() if given.get(key)}
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


LONGEST_NAME, LONGEST_KEY = 255, 1024  # bytes of a file's name on a disk, and of an object's whole key
MOST_COPIED = 5 << 30  # bytes; S3's limit for a copy in one request
PART_BYTES, PARTS_AT_ONCE = 32 << 20, 4  # of an upload; a cloud takes at most 10,000 parts

Result = TypeVar("Result")


class BucketObjects:
    """Objects in buckets of one kind; keys come from the environment, as for the cloud's own client.

    Args:
        kind: `s3`, `gs` or `az`.
        fault: the error raised for a bucket's refusals. FileNotFoundError passes unchanged.
    """

    def __init__(self, kind: str, fault: type[EarmarkError] = InputError) -> None:
        self._kind, self._failed = kind, fault
        self._denied: type[EarmarkError] = type("DeniedError", (fault,), {})  # the keys do not allow the request
        self._clients: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[BucketObjects], tuple[str, type[EarmarkError]]]:
        return BucketObjects, (self._kind, self._failed)

    # -- reading ----------------------------------------------------------------------------------------------

    def look(self, urls: Sequence[str], seen: Callable[[], None] = lambda: None) -> list[Object | None]:
        """Return the store's facts about objects, None for missing or impossible names; call `seen` for each."""

        def one(url: str) -> Object | None:
            key = _key(url).encode()
            seen()
            if not 0 < len(key) <= LONGEST_KEY or max(map(len, key.split(b"/"))) > LONGEST_NAME:
                return None
            try:
                return self._ask(url, lambda client, key: _object(client.head(key)))
            except (FileNotFoundError, ValueError):  # the client rejects names with control signs
                return None

        return at_once(one, urls)

    def listed(self, url: str) -> Iterator[tuple[str, Object]]:
        """Yield all objects at or below a URL, with their URLs.

        Raises:
            EarmarkError: the bucket is missing, or an object's name cannot be a path on a disk.
        """
        bucket, itself = "/".join(url.split("/")[:3]), self.look([url])[0] if _key(url) else None
        found: dict[str, Object] = {} if itself is None else {url: itself}
        try:
            below = self._ask(url, lambda client, key: [one for page in client.list(key or None) for one in page])
        except FileNotFoundError:
            below = []
        # some tools mark a folder by an empty object of the folder's name
        found |= {f"{bucket}/{one['path']}": _object(one) for one in sorted(below, key=lambda one: one["size"])}
        if not found:
            self.require([url])
        folders: set[str] = set()
        for name in found:
            while (name := name.rpartition("/")[0]) and name not in folders:
                folders.add(name)
        empty = [name for name, held in found.items() if not held.size]
        marks = {name for name, held in zip(empty, self.look(empty), strict=True) if held is None} | (
            folders & set(empty)
        )
        yield from ((name, held) for name, held in found.items() if name not in marks)

    def folders(self, url: str) -> list[str]:
        """Return the names right below a URL with objects below them."""
        found = self._ask(url, lambda client, key: client.list_with_delimiter(key or None)["common_prefixes"])
        return [str(one).rpartition("/")[2] for one in found]

    def require(self, urls: Iterable[str]) -> None:
        """Refuse missing buckets; pass those closed to listing, since their objects were requested before."""
        for bucket in sorted({"/".join(url.split("/")[:3]) for url in urls}):
            try:
                self.require_listed(bucket)
            except self._denied:
                continue

    def require_listed(self, url: str) -> None:
        """Refuse a missing bucket, or one whose names may not be listed."""
        name, holder = url.split("/")[2], BUCKETS[self._kind]
        try:
            self._ask(url, lambda client, key: next(iter(client.list(key or None, chunk_size=1)), None))
        except FileNotFoundError:
            raise self._failed(
                f"{url}: expected a {holder} '{name}', found none; make it, or correct the name"
            ) from None

    def blocks(self, url: str, start: int = 0, state: Object | None = None) -> Iterator[bytes]:
        """Yield an object's bytes from `start` on, all of one state (default: the present one).

        Raises:
            FileNotFoundError: the object is missing or was replaced.
            EarmarkError: it is stored in an encoding; another client would decode it.
        """
        state = state or self._ask(url, lambda client, key: _object(client.head(key)))
        while start < state.size:
            part = {"range": (start, min(start + BLOCK_BYTES, state.size)), "if_match": state.etag}
            yield self._ask(url, partial(self._block, url, part))
            start += BLOCK_BYTES

    def _block(self, url: str, part: dict[str, Any], client: Any, key: str) -> bytes:
        answer = client.get(key, options=part)
        encoding = answer.attributes.get("Content-Encoding")
        if encoding and self._kind != "s3":
            raise self._failed(f"{url}: stored with Content-Encoding: {encoding}; store it without")
        return bytes(answer.bytes())

    def read(self, url: str) -> bytes:
        """Return all bytes of a small object."""
        return self._ask(url, lambda client, key: bytes(client.get(key).bytes()))

    def sha256(self, url: str) -> tuple[int, str | None] | None:
        """Return an object's size and the hash sent with it; None for a missing object."""
        try:
            held = self._ask(url, lambda client, key: client.get(key, options={"head": True}))
        except FileNotFoundError:
            return None
        return held.meta["size"], held.attributes.get("sha256")

    # -- writing ----------------------------------------------------------------------------------------------

    def create(self, url: str, content: bytes) -> bool:
        """Create an object unless it exists; return whether it was created. Of concurrent attempts one succeeds."""
        try:
            self._ask(url, lambda client, key: client.put(key, content, mode="create"))
        except FileExistsError:
            return False
        return True

    def write(self, url: str, content: bytes) -> None:
        """Make or replace a small object."""
        self._ask(url, lambda client, key: client.put(key, content))

    def send(self, path: Path, url: str, sha256: str) -> None:
        """Upload a file, with its hash."""
        attributes = {"sha256": sha256, "Content-Type": mimetypes.guess_type(path)[0] or "application/octet-stream"}
        parts = {"chunk_size": PART_BYTES, "max_concurrency": PARTS_AT_ONCE}
        self._ask(url, lambda client, key: client.put(key, path, attributes=attributes, **parts))

    def copy(self, source: str, url: str) -> None:
        """Copy an object within its bucket, with its attributes."""
        self._ask(url, lambda client, key: client.copy(_key(source), key))

    def remove(self, urls: Sequence[str]) -> None:
        """Remove objects of one bucket; raise FileNotFoundError for a missing one where the cloud reports it."""
        self._ask(urls[0], lambda client, _: client.delete([_key(url) for url in urls]))

    # -- the client -------------------------------------------------------------------------------------------

    def _ask(self, url: str, work: Callable[[Any, str], Result]) -> Result:
        """Call `work` with a bucket's client and a URL's key; shorten the client's errors to one line."""
        bucket = url.split("/")[2]
        if bucket not in self._clients:
            self._clients[bucket] = open_bucket(self._kind, bucket, self._failed)
        try:
            return waited(lambda: work(self._clients[bucket], _key(url)))
        except PreconditionError:
            raise FileNotFoundError(url) from None
        except AlreadyExistsError:
            raise FileExistsError(url) from None
        except InvalidPathError as error:
            raise self._failed(
                f"{url}: expected names without empty parts, '.', '..' and control signs; rename the object "
                f"({first_words(error)})"
            ) from None
        except BaseError as error:
            words = first_words(error)
            if words.startswith("404"):
                raise FileNotFoundError(url) from None
            if isinstance(error, PermissionDeniedError | UnauthenticatedError) or re.search(
                r"^40[13]\b|\b169\.254\.", words
            ):
                raise self._denied(
                    f"{url}: access denied ({words}); check {KEYS[self._kind]} and what they allow"
                ) from None
            raise self._failed(f"{url}: cannot be reached: {words}; check {KEYS[self._kind]}") from None


def _key(url: str) -> str:
    return (url.split("/", 3)[3:] or [""])[0].rstrip("/")


def _object(facts: ObjectMeta) -> Object:
    """Return an object's facts; Azure's lists leave out the quotes of an ETag."""
    etag = str(facts["e_tag"]).strip('"')
    return Object(f'"{etag}"', facts["size"])
