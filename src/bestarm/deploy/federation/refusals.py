"""What the operator of a client can do when its broker can't be reached, or refuses the connection."""

from __future__ import annotations

REFUSED, TAKEN, CERTIFICATE = "refuses this key", "another process is connected", "certificate"


def advice(why: str, client: str) -> str:
    """How to fix a failed connection of a client.

    Parameters
    ----------
    why : str
        The error, as ``wire.connect`` says it.
    client : str
        The client's name.

    Returns
    -------
    str
        A sentence without a period at its end.

    Examples
    --------
    >>> advice("tls://a:4222: another process is connected with this client's key", "west-1")
    'Stop the other process with this key: a client runs in one folder only, and in no copy of it'
    """
    if REFUSED in why:
        return (
            "Ask the server's operator: a client that was cut off can be allowed again (bestarm federation "
            f"allow DIR {client}); a revoked key can be replaced (bestarm federation add-client DIR {client})"
        )
    if TAKEN in why:
        return "Stop the other process with this key: a client runs in one folder only, and in no copy of it"
    if CERTIFICATE in why:
        return "Use the folder of this federation's newest init, or ask its operator for the present ca.pem"
    return "Start the server; then check the address (--nats), the port and the firewall"
