"""Options of Fed-Bet."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.problem.scale import Scale
from bestarm.protocol.options import Common, choice, number, option, whole

# What to save: (n1, q). The costs of each are in docs/bet.md.
PREFERENCES = {"balanced": (24, 1.5), "pulls": (16, 1.15), "rounds": (48, 2.0), "bits": (48, 3.0)}


@dataclass(frozen=True, kw_only=True)
class Bet(Common):
    """Options of `bet`, in addition to those of every method.

    Parameters
    ----------
    n1 : int, optional
        The pulls of each arm before the first bets. With privacy, the default is larger by 1/κ², since a
        random answer tells about κ² as much as a reward.
    q : float, optional
        The factor by which pulls grow from block to block.
    prefer : str
        What to save ("balanced", "pulls", "rounds" or "bits"). It sets `n1` and `q` if they are not given.
    silence : str
        What the server does when its patience is over ("wait" or "fill"): end the run undecided, or count the
        missing rewards of the champion as 0, and those of a rival as 1, for good.
    alpha : float
        The probability, in addition to delta, that any interval of the answer misses. Half of it is for the
        option that is named (for all answers of a question), half for the others.
    allocation : str
        How the pulls of a block are shared among sites, for questions about all of them: in proportion to
        their weights ("weights"), equally ("equal"), to weight times standard deviation ("neyman"), or to the
        pace of sites whose subjects arrive ("pace"; elsewhere to their weights).
    margin : float
        For the question "control": the lead that does not matter, in units of the rewards.
    open_blocks : int
        How many blocks may be open at once. With more than one, fast sites need not wait for slow ones; with
        the question "each", every site closes its own blocks.

    Raises
    ------
    InputError
        If an option has an invalid value.
    """

    n1: int | None = option(
        None,
        "pulls of each arm before the first bets",
        whole(1, 2**30, optional=True),
        "a whole number from 1 to 2^30",
        unset="by --prefer",
    )
    q: float | None = option(
        None,
        "factor by which pulls grow from block to block",
        lambda x: x is None or number(1.05, below=1000.5)(x),
        "a number from 1.05 to 1000",
        unset="by --prefer",
    )
    prefer: str = option(
        "balanced",
        "what to save: balanced, pulls, rounds or bits",
        choice(*PREFERENCES),
        " or ".join(f'"{p}"' for p in PREFERENCES),
    )
    silence: str = option(
        "wait",
        "what to do about missing rewards when patience is over: wait or fill",
        choice("wait", "fill"),
        '"wait" or "fill"',
    )
    alpha: float = option(
        0.05,
        "probability that any interval of the answer misses, in addition to delta",
        number(1e-100, below=1.0),
        "a number in (0, 1), ends excluded",
    )
    allocation: str = option(
        "weights",
        "how sites share a block's pulls: weights, equal, neyman or pace",
        choice("weights", "equal", "neyman", "pace"),
        '"weights", "equal", "neyman" or "pace"',
    )
    margin: float = option(
        0.0,
        "lead over the control that does not matter, in units of the rewards",
        number(0.0),
        "at least 0",
        scaled=True,
    )
    open_blocks: int = option(
        1, "blocks that may be open at once, so that fast sites need not wait", whole(1, 64), "1 to 64"
    )

    def rescaled(self, scale: Scale) -> Bet:
        made = super().rescaled(scale)
        return made if scale.privacy is None else PrivateBet(**vars(made), slope=scale.slope)


@dataclass(frozen=True, kw_only=True)
class PrivateBet(Bet):
    """The options in the form that machines use if rewards are random answers, which shrink gaps by κ."""

    slope: float = option(1.0, "κ of the answers", number(above=0.0, below=1.0 + 1e-9), "in (0, 1]")
