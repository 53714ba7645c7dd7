"""`earmark sweep`: what killed commits left in an object store goes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, print_json


def sweep(
    older_h: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="Remove only files that have not changed for so many hours.")
    ] = 24.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; remove nothing.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the files of interrupted commits from an object store.

    No version is touched. In a folder there is nothing to sweep: the next build of a corpus does it.

    **Example:** `earmark sweep --store s3://lab/store --dry-run`
    """
    from earmark.schemas.errors import StoreError
    from earmark.tasks.store.leftovers import find_leftovers, find_unended, remove_unended

    place = open_store(store)
    if place.remote is None:
        raise StoreError(
            f"sweep: expected a store in an object store, found {place.address}; there, the next build of a corpus "
            "removes what a killed one left"
        )
    before = datetime.now(UTC) - timedelta(hours=older_h)
    versions = [left for left in find_leftovers(place.remote) if left.written <= before]
    uploads = [left for left in find_unended(place.remote) if left.written <= before]
    if not dry_run:
        versions = [version for version in versions if place.remote.discard(version.corpus, version.version)]
        for upload in uploads:
            remove_unended(place.remote, upload)
    facts = {
        "store": place.address,
        "dry_run": dry_run,
        "versions": [
            {"corpus": v.corpus, "version": v.version, "objects": len(v.paths), "bytes": v.bytes} for v in versions
        ],
        "uploads": [upload.key for upload in uploads],
    }
    if as_json:
        print_json(facts)
        return
    done = "would go" if dry_run else "removed"
    for version in versions:
        what = (
            f"{len(version.paths):,} objects, {version.bytes:,} bytes, the last of {version.written:%Y-%m-%d %H:%M} UTC"
        )
        print(f"{version.corpus} {version.version}, never committed: {what}: {done}")
    for upload in uploads:
        print(f"{upload.key}, an upload that never ended, of {upload.written:%Y-%m-%d %H:%M} UTC: {done}")
    if not versions and not uploads:
        print(f"{place.address}: nothing that a killed commit left, older than {older_h:g} hours")
