"""Writes the JSON schema of records, which is published with the package."""

from __future__ import annotations

import json
from pathlib import Path

from bestarm.records import schema

if __name__ == "__main__":
    path = Path(schema.__file__).with_name(schema.FILE)
    path.write_text(json.dumps(schema.make_schema(), indent=1) + "\n", encoding="utf-8")
