"""Files with care: those from outside are opened only if they are files, those of one owner are made for them alone.

A pipe, a device or the kernel's own files may have no end. A mode that comes after a file leaves it open for a moment.
"""

import errno
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, cached_property
from io import FileIO
from pathlib import Path
from urllib.parse import quote

from earmark.schemas.errors import DiskError, InputError

_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
LINKS = "EARMARK_LINKS"
FOLLOW = f"{LINKS}=follow"
_KERNEL = ("/proc", "/sys")  # regular by their mode; some wait for events, none has a size


class NotAFile(OSError):
    """Something lies at a path that is no regular file; `strerror` says what was expected and what is there."""


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading, without a buffer; never wait for whoever writes to a pipe.

    Raises:
        OSError: it cannot be opened: `IsADirectoryError` for a folder, `NotAFile` for a pipe, socket or device.
        ValueError: no file can have that path.
    """
    _check(path, os.stat(path))  # opening a device may do something to it  # noqa: PTH116
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(handle))  # of what was opened: another thing may lie there since
        os.set_blocking(handle, True)
        return FileIO(handle)
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path) -> Path:
    """Return the path, for libraries that open files themselves.

    Raises:
        OSError: as by `open_regular`.
    """
    open_regular(path).close()
    return path


def read_regular(path: Path) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: as by `open_regular`, or it cannot be read.
    """
    with open_regular(path) as file:
        return file.readall()


class Root:
    """A folder that a source's files lie in, for telling which of them lie in it by name only.

    Args:
        folder: absolute; it may be a link itself, as the config names it.
        follows: whether links may lead anywhere.
    """

    def __init__(self, folder: Path, *, follows: bool = False) -> None:
        self.folder = folder
        self.follows = follows
        self._holds: dict[str, bool] = {}

    @cached_property
    def _real(self) -> Path:
        return Path(os.path.realpath(self.folder))  # ValueError where no folder can have the path

    def leads_out(self, path: Path) -> bool:
        """Return whether a path below the folder is, or goes through, a link out of it; costs a look a file."""
        if self.follows:
            return False
        # by os.path: no name is too long for it, and a path's own `parent` and hash take longer than the look
        for place in (os.path.dirname(path), *([str(path)] if os.path.islink(path) else ())):  # noqa: PTH114, PTH120
            if place not in self._holds:
                self._holds[place] = Path(os.path.realpath(place)).is_relative_to(self._real)
            if not self._holds[place]:
                return True
        return False


def source_root(folder: Path) -> Root:
    """Return the root of a source's files; the machine's owner may let links lead out of it.

    Raises:
        InputError: a file, such as an archive, stands where a folder was expected.
    """
    if not os.path.isdir(folder):  # noqa: PTH112  # a name may be too long
        file = next((place for place in (folder, *folder.parents) if os.path.isfile(place)), None)  # noqa: PTH113
        if file is not None:
            raise InputError(
                f"{folder}: expected a folder of files, found a file, {file.name}: unpack an archive first (tar -xf, "
                "unzip), then name its folder in audio_root, root or the option that holds this path"
            )
    return Root(folder, follows=os.environ.get(LINKS) == "follow")


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is None and status.st_dev in _kernel_devices():
        kind = "a file of the kernel"
    if kind is not None:
        raise NotAFile(errno.EINVAL, f"expected a file, found {kind}", str(path))


@cache
def _kernel_devices() -> set[int]:
    return {os.stat(place).st_dev for place in _KERNEL if os.path.ismount(place)}  # noqa: PTH116


def keep_private(path: Path, content: str | bytes = b"") -> None:
    """Make a file that its owner alone may read, from its first moment and whole; whoever comes second leaves it alone.

    A file that is there is never opened, since to close it would drop SQLite's locks on it; others lose access to it.

    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # a disk without links
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    close_to_others(path)


def close_to_others(path: Path) -> None:
    """Take every access of group and others from a file or folder, where it is ours."""
    status = path.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(status.st_mode) & ~0o077)


def private_folder(path: Path) -> Path:
    """Return a folder that its owner alone may enter, from its first moment; its parents are as the umask says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    close_to_others(path)
    return path


BUSY_S = 60.0  # how long to wait for another process
PAUSE_S = 0.01


def write_ahead(connection: sqlite3.Connection) -> None:
    """Give a file a write-ahead log, so that one process writes while others read.

    While processes that open a new file at once all ask for it, SQLite says "locked" without the wait that its timeout
    promises: it is asked again.

    Raises:
        sqlite3.Error: the file is no database, or is locked for longer than `BUSY_S` seconds.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(PAUSE_S)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing, for any thread; it reads the log of a process that has the file open.

    Without such a log the file is opened as one that stays as it is, since SQLite would lay an empty log beside it.

    Raises:
        sqlite3.Error: the file is missing, or no database.
    """
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    place = quote(str(path.absolute()))
    return sqlite3.connect(
        f"file:{place}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )


def database_fault(path: Path, error: Exception, variable: str) -> str:
    """Say why a SQLite file cannot be opened or written; if another place would help, name the variable for it."""
    code, folder = getattr(error, "sqlite_errorcode", 0) & 0xFF, path.parent
    said = getattr(error, "strerror", None) or str(error)
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        said = f"{os.strerror(errno.ENOSPC)}; make room"
    elif code not in (0, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return said
    elif os.path.isdir(path):  # noqa: PTH112  # no error in a folder that may not be entered
        said = "expected a file, found a folder; move it away"
    elif not os.path.isdir(folder):  # noqa: PTH112
        said = f"expected a folder: {folder}; make it"
    elif not (os.access(folder, os.W_OK) and os.access(path if path.exists() else folder, os.W_OK)):
        said = "the file or its folder is read-only; make both writable"
    else:
        return said
    return f"{said}, or name another place by {variable}"


@contextmanager
def naming_database(path: Path, variable: str) -> Iterator[None]:
    """Give SQLite's errors in the block the name of their file, and of the variable for another place.

    Raises:
        DiskError: in place of such an error.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise DiskError(f"{path}: {database_fault(path, error, variable)}") from None


@contextmanager
def connected(path: Path, variable: str = "EARMARK_MEDIA_INDEX") -> Iterator[sqlite3.Connection]:
    """Open a connection that commits and closes at the end of its block; sqlite3's own context leaves it open.

    Raises:
        DiskError: the file cannot be read or written, or is no database; see `naming_database`.
    """
    with naming_database(path, variable), closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
        yield connection
        connection.commit()
