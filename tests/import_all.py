"""Import every module of the package, but for those of extras that are not here: `python -m tests.import_all`."""

from __future__ import annotations

import importlib
import pkgutil

import earmark

OF_EXTRAS = {"torch"}
GONE = {"earmark.tasks.build"}  # it says where its names are now

if __name__ == "__main__":
    for module in pkgutil.walk_packages(earmark.__path__, "earmark."):
        if module.name in GONE:
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if missing.name not in OF_EXTRAS:
                raise
