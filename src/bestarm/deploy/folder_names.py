"""Names of folders for clients: readable, safe on every file system, and distinct even without case."""

from __future__ import annotations

import unicodedata
from collections.abc import Set as AbstractSet

MOST_CHARACTERS, MOST_BYTES = 60, 180  # a file system allows 255 bytes, and suffixes may follow

# Windows reserves these names, with or without an ending.
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{k}" for port in ("com", "lpt") for k in "0123456789")}


def folder_name(client: str) -> str:
    """The client's name as the name of a folder: letters of any script stay, everything else becomes "-".

    Parameters
    ----------
    client : str
        Any name.

    Returns
    -------
    str
        A name in Unicode's composed form (NFC) without spaces, separators or control characters; empty if
        nothing of the client's name can be used.

    Examples
    --------
    >>> folder_name("Süd-1"), folder_name("St. Mary's, Ward 3"), folder_name("../..")
    ('Süd-1', 'St.-Mary-s-Ward-3', '')
    """
    kept = "".join(c if _is_safe(c) else " " for c in unicodedata.normalize("NFC", client))
    name = "-".join(kept.split()).strip("-.")[:MOST_CHARACTERS]
    while len(name.encode()) > MOST_BYTES:
        name = name[:-1]
    name = name.rstrip("-.")
    return f"{name}_" if name.partition(".")[0].casefold() in RESERVED else name


def _is_safe(c: str) -> bool:
    """Letters, marks (vowel signs of many scripts), digits, and three more."""
    return unicodedata.category(c)[0] in "LMN" or c in "_.-"


def same_folder(name: str) -> str:
    """A key that is the same for names that some file system takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def unused(client: str, slot: str, taken: AbstractSet[str]) -> str:
    """A new folder's name: NAME, NAME.SLOT or NAME.SLOT.2, …; `taken` has ``same_folder`` of all others."""
    name = folder_name(client) or slot
    found, k = name, 1
    while same_folder(found) in taken:
        found = f"{name}.{slot}" if k == 1 else f"{name}.{slot}.{k}"
        k += 1
    return found
