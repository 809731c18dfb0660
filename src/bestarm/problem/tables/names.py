"""Names as users mean them: blanks around them are dropped, unless that would merge two names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bestarm.util.text import shorten

MOST_NAMED = 3  # groups of names in a note


def settled(names: Sequence[str], column: str) -> tuple[list[str], list[str]]:
    """The names without blanks around them, and notes on names that look alike.

    Names that differ only by blanks or case stay apart. A slash becomes a division slash, since full names
    are site/option.

    >>> settled(["north ", "south/1"], "city")
    (['north', 'south∕1'], [])
    >>> print(settled(["north", "North"], "city")[1][0])  # doctest: +ELLIPSIS
    column "city": 'north' and 'North' differ only by blanks or case, and count as different names (if...)
    """
    plain = [name.replace("/", "∕") for name in names]
    bare = [name.strip() for name in plain]
    times = Counter(bare)
    found = [short if times[short] == 1 else name for name, short in zip(plain, bare, strict=True)]
    if len(set(found)) < len(found):  # two names differ only by their kind of slash
        found = list(names)
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.split()).casefold(), []).append(name)
    pairs = [" and ".join(map(shorten, group)) for group in alike.values() if len(group) > 1]
    if not pairs:
        return found, []
    more = f" (and {len(pairs) - MOST_NAMED} more)" if len(pairs) > MOST_NAMED else ""
    text = f"{'; '.join(pairs[:MOST_NAMED])}{more}"
    said = f'column "{column}": {text} differ only by blanks or case, and count as different names'
    return found, [f"{said} (if they mean the same, write them alike in the table)"]
