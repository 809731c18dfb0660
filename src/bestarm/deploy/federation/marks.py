"""Marks in a server's journal: a restart need not check again the signatures before the last one.

A ``mark`` is the server's signature over the run, its own place in the journal, and the hash of all events
before it. A server that finds its own valid mark has checked those events when it accepted them, and the
chain of hashes shows that they are unchanged. Anyone else, such as ``verify``, checks every signature.
"""

from __future__ import annotations

from collections.abc import Iterable

from bestarm.deploy.identity import Key, verified
from bestarm.util.journal import Event, Journal

MARK = "mark"  # the kind of event

DOMAIN = b"bestarm mark 1\n"


def _statement(journal: Journal, run: bytes, seq: int) -> bytes:
    return DOMAIN + run + seq.to_bytes(8, "big") + journal.hash_before(seq)


def append_mark(journal: Journal, run: bytes, key: Key) -> None:
    """Sign all events of the journal so far."""
    journal.append(MARK, key.sign(_statement(journal, run, len(journal))))


def valid_mark(journal: Journal, run: bytes, event: Event, public: bytes) -> bool:
    """Whether the owner of this public key signed this mark, here and after these events."""
    return verified(public, event.body, _statement(journal, run, event.seq))


def trusted_events(journal: Journal, run: bytes, publics: Iterable[bytes]) -> int:
    """How many events need no check of their signatures, because the last mark is signed with one's own key.

    Parameters
    ----------
    journal : Journal
        The server's journal.
    run : bytes
        The run's id.
    publics : iterable of bytes
        The public keys whose private keys the caller has.

    Returns
    -------
    int
        The place of the last mark, or 0 if it is missing or not valid.
    """
    own = list(publics)
    mark = journal.last(MARK) if own else None  # without keys, all signatures are checked
    if mark is None or not any(valid_mark(journal, run, mark, public) for public in own):
        return 0
    return mark.seq
