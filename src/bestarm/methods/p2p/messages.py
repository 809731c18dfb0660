"""The messages between peers: a ``Claim`` about an arm-set, and a ``Conclusion``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bestarm.protocol.codec import Malformed, Reader, Writer, width_of
from bestarm.protocol.messages import canonical


@dataclass(frozen=True)
class Claim:
    """A peer's claim about an arm-set: its best arm, with the mean or with bounds on the mean."""

    group: int
    arm: int
    mean: float = 0.0
    lower: float = 0.0
    upper: float = 0.0

    def encode(self, arm_counts: tuple[int, ...], exchange: str) -> tuple[bytes, int]:
        w = Writer()
        if exchange == "intervals":
            w.flag(False)
        w.fixed(self.group, width_of(len(arm_counts)))
        w.fixed(self.arm, width_of(arm_counts[self.group]))
        for value in (self.mean,) if exchange == "means" else (self.lower, self.upper):
            w.real(value)
        return w.payload(), w.bits


@dataclass(frozen=True)
class Conclusion:
    """A peer's verdict; sent only if peers exchange intervals."""

    group: int
    arm: int

    def encode(self, arm_counts: tuple[int, ...], exchange: str) -> tuple[bytes, int]:
        w = Writer()
        w.flag(True)
        w.fixed(self.group, width_of(len(arm_counts)))
        w.fixed(self.arm, width_of(arm_counts[self.group]))
        return w.payload(), w.bits


def decode_claim(data: bytes, arm_counts: tuple[int, ...], exchange: str) -> Claim | Conclusion:
    """Decode a message between peers."""
    r = Reader(data)
    final = exchange == "intervals" and r.flag()
    group = r.fixed(width_of(len(arm_counts)))
    if group >= len(arm_counts):
        raise Malformed(f"arm-set {group} of {len(arm_counts)}")
    arm = r.fixed(width_of(arm_counts[group]))
    if arm >= arm_counts[group]:
        raise Malformed(f"arm {arm} of an arm-set of {arm_counts[group]}")
    message: Claim | Conclusion
    if final:
        message = Conclusion(group, arm)
    elif exchange == "means":
        message = Claim(group, arm, mean=_bounded(r.real(), 0.0, 1.0))
    else:
        # Radii are at most 1/2 when Phase I ends (c > 2), so honest bounds lie in [−1, 2].
        message = Claim(group, arm, lower=_bounded(r.real(), -1.0, 2.0), upper=_bounded(r.real(), -1.0, 2.0))
    canonical(data, message.encode(arm_counts, exchange))
    return message


def _bounded(value: float, low: float, high: float) -> float:
    if not (math.isfinite(value) and low <= value <= high) or (value == 0 and math.copysign(1.0, value) < 0):
        raise Malformed(f"a number of {value}")
    return value
