"""The algorithms, without I/O: one implementation of each for simulator, federation, mesh and audit.

To add a method, write its machines in a file of their own and give it a row in ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bestarm.protocol import fedsel


@dataclass(frozen=True)
class Method:
    """A method: its options, its machines, and the check that it can serve a layout."""

    options: type[Any]
    client: type[Any]
    server: type[Any]
    refuse: Callable[[Any, Any], None]


METHODS: dict[str, Method] = {
    "fed-sel": Method(fedsel.Options, fedsel.Client, fedsel.Server, fedsel.refuse),
}
