"""What a cell of a table means: a name, a number, or nothing.

Numbers may be written as people write them: ``1,234``, ``12 %``, ``$3.50``, ``17 ms``, ``yes``. A column must
stick to one way of writing, its *kind*, so that 12 % and 0.12 are never mixed up.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
from decimal import Decimal

from bestarm.problem.csv_file import finite_number

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})  # cells that mean a missing number
BOOLEANS = dict.fromkeys(("true", "yes", "t", "y", "ja", "oui", "sí", "si"), 1.0)
BOOLEANS |= dict.fromkeys(("false", "no", "f", "n", "nein", "non"), 0.0)
PLAIN, LACKING, BOOLEAN, PERCENT = "plain", "missing", "boolean", "%"  # kinds; any other is a unit
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
WITH_UNIT = re.compile(
    r"(?P<before>[$€£¥]?)\s*(?P<number>[+-]?[\d.,]+([eE][+-]?\d+)?)\s*(?P<after>[%$€£¥]|[^\W\d_][^\d]{0,11})?"
)


def name_text(cell: object) -> str:
    """A cell as a name; "" if it is missing.

    >>> name_text("a "), name_text(3.0), name_text(True), name_text(None), name_text(float("nan"))
    ('a ', '3', 'true', '', '')
    """
    if isinstance(cell, str):
        return cell
    if cell is None or (isinstance(cell, numbers.Real) and math.isnan(cell)) or str(cell) in ("NaT", "<NA>"):
        return ""
    if isinstance(cell, bool) or type(cell).__name__ == "bool":  # NumPy's is no subclass
        return str(bool(cell)).lower()
    if isinstance(cell, numbers.Integral):
        return str(int(cell))
    if isinstance(cell, numbers.Real | Decimal) and float(cell).is_integer():
        return str(int(float(cell)))
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def number(cell: object) -> tuple[str, float] | None:
    """The kind of a cell and its number; None if it is not a number.

    >>> number("0.5"), number("1,234"), number("12 %"), number("Yes"), number("17 ms"), number("n/a")
    (('plain', 0.5), ('plain', 1234.0), ('%', 0.12), ('boolean', 1.0), ('ms', 17.0), ('missing', nan))
    >>> number("$3.50"), number("12.50 €"), number("ja")
    (('$', 3.5), ('€', 12.5), ('boolean', 1.0))
    >>> number("3,5"), number("inf"), number("1_000"), number("2024-05-01"), number("v2")
    (None, None, None, None, None)
    """
    if cell is None:
        return LACKING, math.nan
    if not isinstance(cell, str):
        return _typed(cell)
    text = cell.strip()
    value = finite_number(text)
    if value is not None:
        return PLAIN, value
    if text.lower() in MISSING:
        return LACKING, math.nan
    if text.lower() in BOOLEANS:
        return BOOLEAN, BOOLEANS[text.lower()]
    return _with_unit(text)


def _typed(cell: object) -> tuple[str, float] | None:
    """The same for a cell that is no text."""
    if isinstance(cell, bool) or type(cell).__name__ == "bool":
        return BOOLEAN, float(bool(cell))
    if isinstance(cell, numbers.Real | Decimal):
        value = float(cell)
        if math.isnan(value):
            return LACKING, value
        return (PLAIN, value) if math.isfinite(value) else None
    return (LACKING, math.nan) if str(cell) in ("NaT", "<NA>") else None


def _with_unit(text: str) -> tuple[str, float] | None:
    """Thousands, percentages, money and units."""
    match = WITH_UNIT.fullmatch(text)
    if match is None:
        return None
    digits, unit = match["number"], match["before"] or (match["after"] or "").strip()
    if match["before"] and match["after"]:
        return None
    value = finite_number(digits.replace(",", "") if THOUSANDS.fullmatch(digits) else digits)
    if value is None:
        return None
    return (PERCENT, value / 100) if unit == "%" else (unit or PLAIN, value)
