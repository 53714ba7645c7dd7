"""What tests read out of a report."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def data_of(page: str) -> dict[str, Any]:
    """The page's block of data: `sounds` by SHA-256, and `sheets`, each unpacked."""
    block = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    data: dict[str, Any] = json.loads(block)
    return {**data, "sheets": [json.loads(gzip.decompress(base64.b64decode(one))) for one in data["sheets"]]}


def told(page: str) -> str:
    """All that a reader may come to see: the page without its block of data, and the rows that the block holds."""
    before, _, rest = page.partition('<script type="application/json" id="data">')
    sheets = json.dumps(data_of(page)["sheets"], ensure_ascii=False)
    return before + rest.partition("</script>")[2] + sheets
