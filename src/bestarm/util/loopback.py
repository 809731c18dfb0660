"""Which names and addresses belong to this computer alone: pages that are only for it check the Host header.

Otherwise a foreign page whose name resolves to this computer (DNS rebinding) could read them.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a name or an address is a loopback one, which no other computer can reach.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def from_this_computer(host: str) -> bool:
    """Whether the Host header of a request, with or without a port, names this computer.

    >>> [from_this_computer(host) for host in ("localhost:9464", "[::1]", "example.org:9464", "")]
    [True, True, False, False]
    """
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
