"""Send, bring and list 300 objects by 32 threads over loopback: obstore, and s3fs where it is installed.

python -m tests.benchmarks.bench_buckets
"""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from earmark.tasks.store.objects import at_once
from tests.servers.s3_server import S3Server

OBJECTS, BYTES = 300, 200_000
SERVE = """
import logging, sys
from tests.servers.s3_server import S3Server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
with S3Server() as server:
    server.make("lab")
    print(server.url, flush=True)
    sys.stdin.read()
"""


def by_obstore() -> tuple[Callable[[str, bytes], Any], Callable[[str], bytes], Callable[[], int]]:
    """Return functions to put, get and count objects by obstore."""
    from obstore.store import S3Store

    store = S3Store("lab", client_options={"allow_http": True})
    return store.put, lambda name: bytes(store.get(name).bytes()), lambda: sum(map(len, store.list("f")))


def by_s3fs() -> tuple[Callable[[str, bytes], Any], Callable[[str], bytes], Callable[[], int]]:
    """Return functions to put, get and count objects by s3fs, as release 1.0.0 did."""
    import s3fs

    files = s3fs.S3FileSystem(use_listings_cache=False, config_kwargs={"max_pool_connections": 32})
    return (
        lambda name, content: files.pipe_file(f"lab/{name}", content),
        lambda name: files.cat_file(f"lab/{name}"),
        lambda: len(files.find("lab/f")),
    )


def main() -> None:
    """Print a line a client."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        os.environ.update(S3Server().environment, AWS_ENDPOINT_URL=server.stdout.readline().decode().strip())
        content, names = os.urandom(BYTES), [f"f/{number}" for number in range(OBJECTS)]
        for client in (by_obstore, by_s3fs):
            began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
            try:
                put, get, count = client()
            except ImportError:
                print(f"{client.__name__}: not installed")
                continue
            times = [time.perf_counter() - began]
            for step in (
                lambda put=put: at_once(lambda name: put(name, content), names),
                lambda get=get: at_once(get, names),
                count,
            ):
                began = time.perf_counter()
                step()
                times.append(time.perf_counter() - began)
            assert count() == OBJECTS
            used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
            print(f"{client.__name__}: opened {times[0]:.2f} s, sent {times[1]:.2f} s, brought {times[2]:.2f} s, "
                  f"listed {times[3]:.2f} s, processor {used:.2f} s")  # fmt: skip
        server.communicate()


if __name__ == "__main__":
    main()
