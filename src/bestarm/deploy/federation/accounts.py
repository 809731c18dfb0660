"""The broker's accounts: one per slot, which may use only the subjects of its own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bestarm.deploy.federation.keys import addresses
from bestarm.deploy.federation.setup import Setup

if TYPE_CHECKING:
    from bestarm.deploy.federation.files import Federation

ACCOUNTS = "broker/accounts.conf"
CONNECTIONS, SUBSCRIPTIONS = 1, 20  # per client: a copy of its folder can't connect beside it


def account(setup: Setup, slot: str = "") -> str:
    """The name of an account: that of the run, or of a slot."""
    return f"BA_{setup.run.hex()[:8]}" + (f"_{slot}" if slot else "")


def longest_message(setup: Setup) -> int:
    """The largest size in bytes of an honest client's message, with envelope and headers."""
    name = max(len(client.encode()) for client in setup.layout.clients)
    return max(1024, 600 + name + 30 * max(setup.layout.arm_counts))


def longest_hello(setup: Setup) -> int:
    """The largest size in bytes of a client's hello, which holds a broadcast: a bit per group and arm."""
    counts = setup.layout.arm_counts
    return longest_message(setup) + 512 + (len(counts) + sum(counts)) // 4


def connections(federation: Federation) -> int:
    """The connections that a client may have: one at a single broker.

    The servers of a cluster count connections together, and for some minutes also those of a server that was
    killed. Its clients must be able to connect to another one.
    """
    return max(CONNECTIONS, federation.replicas, len(addresses(federation.setup.url)))


def accounts(federation: Federation) -> bytes:
    """The content of ``broker/accounts.conf``: one account per slot, which may use only its own subjects."""
    setup = federation.setup
    subject, owner, longest = setup.subject, account(setup), longest_hello(setup)
    most = connections(federation)
    own_nkeys = [nkey for nkey in (federation.nkey, federation.retired) if nkey]
    lines = [
        "# Written by bestarm; include it in the configuration of a broker of your own.",
        "accounts {",
        f"  {owner} {{",
        "    jetstream: enabled",
        f"    users: [ {', '.join(f'{{ nkey: {nkey} }}' for nkey in own_nkeys)} ]",
        "    exports: [",
        f'      {{ service: "{subject}.up.*" }}',
        f'      {{ service: "{subject}.hello.*" }}',
        '      { service: "$JS.API.CONSUMER.MSG.NEXT.DOWN.*", response: stream }',
        '      { service: "$JS.ACK.DOWN.>" }',
        "    ]",
        "  }",
    ]
    for slot, seat in federation.slots.items():
        pull = f"$JS.API.CONSUMER.MSG.NEXT.DOWN.{slot}"  # renamed: leaf nodes do not forward it
        own = {
            f"{subject}.up.{slot}": "",
            f"{subject}.hello.{slot}": "",
            f"{subject}.next.{slot}": pull,
            f"$JS.ACK.DOWN.{slot}.>": "",
        }
        publish = ", ".join(f'"{name}"' for name in own)
        rights = f'publish: [ {publish} ], subscribe: [ "_INBOX_{slot}.>" ]'
        usable = seat is not None and not seat.revoked and not seat.blocked
        user = f"{{ nkey: {seat.nkey}, permissions: {{ {rights} }} }}" if seat and usable else ""
        lines += [
            f"  {account(setup, slot)} {{",
            f"    users: [ {user} ]",
            f"    limits: {{ max_conn: {most}, max_subs: {SUBSCRIPTIONS}, max_payload: {longest} }}",
            "    imports: [",
            *(
                f'      {{ service: {{ account: {owner}, subject: "{real or name}" }}, to: "{name}" }}'
                for name, real in own.items()
            ),
            "    ]",
            "  }",
        ]
    return ("\n".join([*lines, "}"]) + "\n").encode()
