"""Runs in ms-swift's own environment: load exports with its dataset loader, and read rows as its templates do.

`python swift_loads.py FOLDER…` prints one JSON line a folder: rows that were loaded, and the first as ms-swift sees it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Load `train.jsonl` of each folder."""
    from swift.dataset import load_dataset
    from swift.template.template_inputs import TemplateInputs

    for folder in sys.argv[1:]:
        os.chdir(folder)  # clips are named from the export's folder
        grpo = "grpo" in Path(folder).name
        train, _ = load_dataset(["train.jsonl"], remove_unused_columns=not grpo, strict=True, num_proc=1)
        first = TemplateInputs.from_dict(dict(train[0]))
        sides = {"chosen": first.chosen, "rejected": first.rejected}
        seen = {
            name: {"messages": side.messages, "audios": side.audios, "there": all(map(os.path.isfile, side.audios))}
            for name, side in sides.items()
            if side is not None
        }
        print(json.dumps({"rows": len(train), "columns": train.column_names, "first": seen}, default=str), flush=True)


if __name__ == "__main__":
    main()
