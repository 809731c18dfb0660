"""The methods, one folder each; everything that is specific to a method is in its folder."""

from __future__ import annotations

from bestarm.methods import bet, fed_sel, fisher, p2p, rivals, robust_fed_sel
from bestarm.protocol.registry import include_method

for room in (fed_sel, robust_fed_sel, fisher, bet, p2p):
    include_method(room.METHOD)
for method in rivals.METHODS:
    include_method(method)
