"""Place inputs: a path on this machine, or a URL, whose object has a place in the cache: `s3://bucket/key`, `gs://`
and `az://` likewise, `hf://datasets/owner/name@revision/path` on the Hub, or a split of a data set there as rows.

A build reads files. What lies behind a URL is brought to its place first (`tasks/pipeline/mirror.py`), so a path below
the cache names the object too, and paths are joined, compared and refused by one set of rules.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints

from earmark.schemas.errors import ConfigError

BUCKETS = {"s3": "bucket", "gs": "bucket", "az": "container"}  # kinds of URL, and the word for what holds their objects
KINDS = (*BUCKETS, "hf", "hf-rows")
_HUB = re.compile(r"hf:/+datasets/([\w.-]+/[\w.-]+)(?:@([\w.%+-]+))?(?:/(.*))?", re.DOTALL)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)(.*)", re.DOTALL)
_ROWS_ROOT = re.compile(r"hf-rows:/+([\w.-]+/[\w.-]+)(?:@([\w.%+-]+))?(?:/([\w.+/-]*))?")
_ROWS = re.compile(r"([\w.+-]+)/(\w+(?:\.\w+)*?)(?:\.jsonl|(?<!\.jsonl)/[^/]+)")
_HUB_FORM = "hf://datasets/owner/name@revision/path"
_ROWS_FORM = "hf-rows://owner/name@revision/config/split.jsonl"
_SECRET = re.compile(r"://[^/\s]*@")
_USER = re.compile(r"://[^/?#@]*@")
_LONGEST_PART, _LONGEST_PATH = 255, 1024  # bytes: of a file's name on a disk, of a path that an object store keeps too


def path_below(written: str) -> str:
    """Return a path that a record gives, if it stays below whatever folder it is joined to.

    Raises:
        ValueError: it is absolute, empty or too long, or has `.`, `..`, an empty part, a backslash or a control sign.
    """
    parts = written.split("/")
    if (
        {"", ".", ".."} & set(parts)
        or "\\" in written
        or not written.isprintable()
        or len(written.encode()) > _LONGEST_PATH
        or max(len(part.encode()) for part in parts) > _LONGEST_PART
    ):
        raise ValueError(f"expected a relative path without '.', '..' and '\\', found {written[:120]!r}")
    return written


BelowPath = Annotated[str, AfterValidator(path_below)]
"""A path in a manifest, receipt, journal or pulled tree: text of strangers that is joined to a folder of ours."""
FileName = Annotated[BelowPath, StringConstraints(pattern=r"^[^/]+$")]  # a `BelowPath` of one part
CORPUS, VERSION = re.compile(r"[a-z0-9][a-z0-9-]*"), re.compile(r"v[1-9][0-9]*")
CorpusName = Annotated[str, StringConstraints(pattern=f"^{CORPUS.pattern}$", max_length=100)]
# `v3`, or the name of a file of a published set that is measured as a version
VersionName = Annotated[str, StringConstraints(pattern="^[a-z0-9-]+$", max_length=200)]


def cache_folder() -> Path:
    """Return the cache of remote things: `EARMARK_CACHE`, else `~/.cache/earmark`."""
    return Path(os.environ.get("EARMARK_CACHE") or "~/.cache/earmark").expanduser().absolute()


def is_url(written: str) -> bool:
    """Return whether a config's path is a URL; `Path` has made `s3:/` of `s3://`."""
    match = _URL.match(written)
    return match is not None and (bool(match[2]) or match[1] in KINDS)


def url_fault(written: str) -> str | None:
    """Return the fault of an input's URL, without its possibly secret parts; None if all is well."""
    match = _URL.match(written)
    assert match is not None
    if match[1] not in KINDS:
        buckets = ", ".join(f"{kind}://{holder}/key" for kind, holder in BUCKETS.items())
        return f"expected a path, {buckets}, {_HUB_FORM} or {_ROWS_FORM}, found a {match[1]}:// URL"
    if match[1] in ("hf", "hf-rows"):
        form = _HUB_FORM if match[1] == "hf" else _ROWS_FORM
        hub = (_HUB if match[1] == "hf" else _ROWS_ROOT).fullmatch(written.rstrip("/"))
        if hub is None or {".", ".."} & set(hub[1].split("/")) or {"", ".", ".."} & set((hub[3] or "x").split("/")):
            shown = re.split(r"[?#]", without_secrets(written))[0][:120]
            return f"expected {form}, with %2F for a '/' in the revision (without one, main is read), found {shown}"
        return None
    form = f"{match[1]}://{BUCKETS[match[1]]}/key"
    bucket, *parts = match[3].rstrip("/").split("/")
    if "@" in bucket or "?" in match[3] or "#" in match[3]:
        return f"expected {form} without user, password or query; keys are in the environment"
    if not bucket or {"", ".", ".."} & {bucket, *parts}:
        return f"expected {form} without empty parts, '.' and '..'"
    return None


def hub_parts(url: str) -> tuple[str, str, str]:
    """Return data set, revision as written, and path of an `hf://` URL."""
    match = _HUB.fullmatch(url.rstrip("/"))
    assert match is not None
    return match[1], match[2] or "main", match[3] or ""


def hub_revision(url: str) -> tuple[str, str] | None:
    """Return the data set and the revision, as written, that a URL on the Hub names; None for other URLs."""
    match = _HUB.fullmatch(url.rstrip("/")) or _ROWS_ROOT.fullmatch(url.rstrip("/"))
    return (match[1], match[2] or "main") if match else None


def rows_parts(url: str) -> tuple[str, str, str, str] | None:
    """Split an `hf-rows://` URL: data set, revision as written, configuration and split; it names a split's rows or a
    file that they name; None where it names no split.
    """
    match = _ROWS_ROOT.fullmatch(url)
    split = match and _ROWS.fullmatch(match[3] or "")
    return (match[1], match[2] or "main", split[1], split[2]) if match and split else None


def place_of(url: str) -> Path:
    """Return the place in the cache of the object at a URL."""
    kind, _, rest = url.partition(":")
    return cache_folder() / "inputs" / kind / rest.strip("/")


def url_of(path: Path) -> str | None:
    """Return the URL of the object whose place a path is; None for other paths."""
    try:
        kind, *parts = path.relative_to(cache_folder() / "inputs").parts
    except ValueError:
        return None
    return f"{kind}://{'/'.join(parts)}" if kind in KINDS and parts and ".." not in parts else None


def roots() -> tuple[str, ...] | None:
    """Return the roots for a run of a deployment: the folders and URLs of `EARMARK_ROOTS`, else the folder that it is
    in. None where a person started the command.
    """
    if not os.environ.get("PREFECT__FLOW_RUN_ID"):  # Prefect's workers set it
        return None
    written = os.environ.get("EARMARK_ROOTS") or str(Path.cwd())
    return tuple(filter(None, re.split(rf"{re.escape(os.pathsep)}(?!//)", written)))


def require_below_roots(what: str, written: str) -> None:
    """Refuse a path or URL of a deployment that lies outside `roots()`; links are followed before it is compared.

    Raises:
        ConfigError: it does.
    """
    allowed = roots()
    if allowed is not None and not any(_is_below(written, root) for root in allowed):
        found = without_secrets(written) if is_url(written) else Path(written).absolute()
        raise ConfigError(
            f"{what}: {found} lies outside EARMARK_ROOTS ({', '.join(allowed)}); move it there, or "
            "add its folder to EARMARK_ROOTS where the worker is started"
        )


def _is_below(written: str, root: str) -> bool:
    if is_url(written) or is_url(root):
        return f"{written.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") and url_fault(written) is None
    return Path(written).expanduser().resolve().is_relative_to(Path(root).expanduser().resolve())


def below(folder: str, written: str) -> str:
    """Return a path as the config writes it, seen from a folder that it writes too; either may be a URL."""
    if is_url(written):
        return written
    if is_url(folder):
        return f"{folder if folder.endswith('://') else folder.rstrip('/')}/{written}"
    return str(PurePosixPath(folder) / written)


def without_place(written: str) -> str:
    """Return a path as rows name it: relative ones as written, others by the file's name alone."""
    pure = PurePosixPath(written)
    return pure.name if pure.is_absolute() or ".." in pure.parts else written


def without_places(written: Any) -> Any:
    """Return a path, or the paths of a list or table, as rows name them."""
    if isinstance(written, str):
        return without_place(written)
    if isinstance(written, dict):
        return {name: without_places(one) for name, one in written.items()}
    return written and [without_places(one) for one in written]


def clips_folder(path: Path) -> Path:
    """Return the folder that the clips of a table lie in: its own; of a pattern of files, the last above its fields."""
    return next(folder for folder in path.parents if "{" not in str(folder))


def told(path: Path) -> str:
    """Return a file's or folder's name for messages: its URL, if it has one."""
    return url_of(path) or str(path)


def without_user(variable: str, url: str) -> str:
    """Return the URL of a server without user and password.

    Raises:
        ConfigError: its password cannot be told from the rest, of which messages would show it.
    """
    bare = _USER.sub("://", url, count=1)
    if "@" in bare:
        raise ConfigError(
            f"{variable}: expected SCHEME://USER:PASSWORD@HOST…, found another '@', or / ? # before it; "
            "write / ? # @ of a password as %2F %3F %23 %40"
        )
    return bare


def without_secrets(text: str) -> str:
    """Hide user and password in the URLs of a text."""
    return _SECRET.sub("://…@", text)
