"""The audit of pooled Fed-Fisher: checks of the clients' part of a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.fisher import decisions as fisher_decisions
from bestarm.methods.fisher.looks import Looks, looks_of
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.fisher.pooled.client import COLUMNS
from bestarm.methods.fisher.pooled.server import Pool, Server
from bestarm.problem.layout import Layout


def pulls_of(part: Mapping[str, Any], arms: int, options: Fisher) -> tuple[int, int]:
    """Pulls in the quiet looks and in the later looks, from a client's part of the certificate."""
    looks = Looks(options, 2)  # sizes don't depend on the number of arms
    quiet = min(part["pulls"], arms * looks.size(looks.quiet - 1))
    return quiet, part["pulls"] - quiet


def good_event(
    layout: Layout, options: Fisher, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether no test on honest sums, of any h clients against any other h, could drop the best arm.

    This is the event of the proof, for the first G − f honest clients of each group. None if the best arm is
    not unique, or if a group has fewer honest clients.
    """
    looks = looks_of(layout, options)
    pool = Pool(layout, options, looks)
    flat = np.concatenate([np.asarray(row, dtype=np.float64) for row in means])
    (best,) = np.flatnonzero(flat == flat.max())[:1]
    if (flat == flat[best]).sum() > 1:
        return None
    starts = np.cumsum([0, *layout.arm_counts])
    small: dict[int, int] = {}  # look -> the smallest sum of the best arm over h honest clients
    large: dict[tuple[int, int], int] = {}  # (look, rival) -> the largest sum
    for j, group in enumerate(layout.groups):
        honest = [part for name in group.clients if "attack" not in (part := certificate["local"][name])]
        honest = honest[: len(group.clients) - options.byzantine]
        if len(honest) < len(group.clients) - options.byzantine:
            return None
        found: dict[tuple[int, int], list[int]] = {}
        for part in honest:
            for look, arms, sums in zip(*(part["sent"][c] for c in COLUMNS), strict=True):
                for arm, total in zip(arms, sums, strict=True):
                    found.setdefault((look, int(starts[j]) + arm), []).append(total)
        for (look, arm), sums in found.items():
            # A client that has not reached this look has no sum yet.
            fill = (len(honest) - len(sums)) * [0]
            if arm == best:
                full = sums + (len(honest) - len(sums)) * [looks.size(look)]
                small[look] = sum(sorted(full)[: pool.kept[j]])
            else:
                large[look, arm] = sum(sorted(sums + fill)[-pool.kept[j] :])
    own = pool.group[best]
    for (look, arm), total in large.items():
        if look in small:
            coins, level = pool.coins(look), pool.level(look)
            k = pool.group[arm]
            if fisher_decisions.loses(small[look], total, coins[own], level[own, k], coins[k]):
                return False
    return True


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Check an honest client's sums against what the server received, and its number of pulls."""
    i = server.index[name]
    own, looks = server.own[server.group[i]], server.looks
    sent = list(zip(*(part["sent"][c] for c in COLUMNS), strict=True))
    told = {look for look, table in server.sums.items() if table[i].max() >= 0}
    if server.out[i]:
        yield "is proven faulty, but listed as honest"
    if not 0 <= len(sent) - len(told) <= 1 or told - {look for look, _, _ in sent}:
        yield "sent a different number of messages than the server received"
    pulls = count = 0
    before: dict[int, int] = {}
    for look, arms, sums in sent:
        n = looks.size(look)
        asked = [server.asked[k][own] for k in range(look, server.look + 1) if k in server.asked]
        races = [np.flatnonzero(asked[0] & later).tolist() for later in asked]  # it may have been behind
        if list(arms) not in races:
            yield f"reported arms at look {look} that do not match the requested ones"
        rises = [total - before.get(arm, 0) for arm, total in zip(arms, sums, strict=True)]
        if n < count or not all(0 <= rise <= n - count for rise in rises):
            yield f"has sums at look {look} that are impossible for its number of coins"
        mine = dict(zip(arms, sums, strict=True))
        if look in told and any(
            total >= 0 and total != mine.get(arm)
            for arm, total in enumerate(server.sums[look][i, own].tolist())
        ):
            yield f"has sums that do not match what the server received at look {look}"
        pulls, count, before = pulls + (n - count) * len(arms), n, mine
    later = part["count"] - count  # pulls of each arm on the way to the next look
    most = looks.size(server.look + 1) - count
    if not 0 <= later <= most or part["pulls"] - pulls not in _shares(later, own):
        yield "has a number of pulls that does not match its looks"
    if server.options.budget is not None and part["pulls"] > server.options.budget:
        yield "made more pulls than its budget allows"


def _shares(pulls: int, own: slice) -> list[int]:
    """The total of the pulls of each arm, for any number of arms."""
    return [pulls * arms for arms in range(1, own.stop - own.start + 1)]
