"""What is asked of the options: the best anywhere, overall, for each site, or compared with a control.

A question is part of the layout, so every participant knows it. ``Cells`` says which client can try which
option, and how much its rewards count towards the option's value.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.problem.scale import UNIT, Scale
from bestarm.util.text import nearest, shorten

if TYPE_CHECKING:
    from bestarm.problem.layout import Group, Layout

KINDS = {
    "anywhere": "which option of which site is best?",
    "overall": "which option has the best weighted average over all sites?",
    "each": "which option is best at each site?",
    "control": "which options are better than the control, and which are worse?",
}
KEYS = ("question", "weights", "control", "simultaneous", "also", "missing_options")


@dataclass(frozen=True)
class Question:
    """A question about options that are tried at several sites.

    Parameters
    ----------
    kind : {"anywhere", "overall", "each", "control"}
        What is asked.
    weights : tuple of float
        The weight of each site, for "overall" and "control". The weights sum to 1.
    control : str or None
        The option that the others are compared with.
    simultaneous : bool
        For "each": whether all sites together get δ, instead of every site for itself.
    also : tuple of str
        Further questions of the same run: ("each",) with "overall".
    missing_options : {"refuse", "average"}
        For options that some sites do not offer: refuse them, or average over the sites that offer them.
    """

    kind: str = "anywhere"
    weights: tuple[float, ...] = ()
    control: str | None = None
    simultaneous: bool = False
    also: tuple[str, ...] = ()
    missing_options: str = "refuse"

    @property
    def by_site(self) -> bool:
        """Whether every site gets an answer of its own."""
        return self.kind == "each" or "each" in self.also

    def keys(self, sites: Sequence[str]) -> dict[str, Any]:
        """The keys of a scenario that ask this question, without defaults; `sites` are their names."""
        given = {
            "question": self.kind,
            "weights": dict(zip(sites, self.weights, strict=False)),
            "control": self.control,
            "simultaneous": self.simultaneous,
            "also": list(self.also),
            "missing_options": "" if self.missing_options == "refuse" else self.missing_options,
        }
        return {key: value for key, value in given.items() if value}

    def to_dict(self) -> dict[str, Any]:
        """The question as records store it."""
        return {
            "question": self.kind,
            "weights": list(self.weights),
            "control": self.control,
            "simultaneous": self.simultaneous,
            "also": list(self.also),
            "missing_options": self.missing_options,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any] | None) -> Question:
        """The question of ``to_dict``'s result; without one, "anywhere"."""
        if data is None:
            return Question()
        weights, also = tuple(data["weights"]), tuple(data["also"])
        found = (data["control"], data["simultaneous"], also, data["missing_options"])
        return Question(data["question"], weights, *found)


ANYWHERE = Question()


def shared_options(groups: Sequence[Group]) -> tuple[str, ...]:
    """The names of options that more than one site has.

    >>> from bestarm.problem.layout import Group
    >>> shared_options([Group("US", ("A", "B"), ("us",)), Group("EU", ("B", "C"), ("eu",))])
    ('B',)
    """
    seen: dict[str, int] = {}
    for group in groups:
        for name in group.arms:
            seen[name] = seen.get(name, 0) + 1
    return tuple(name for name, times in seen.items() if times > 1)


def make_question(
    groups: Sequence[Group], keys: Mapping[str, Any], rows: Sequence[int] | None = None
) -> Question:
    """Check the keys of a question against the sites.

    Parameters
    ----------
    groups : sequence of Group
        The sites.
    keys : mapping
        Any of ``KEYS``, as a scenario has them.
    rows : sequence of int, optional
        How many rows of data each site has, for ``weights = "rows"``.

    Returns
    -------
    Question

    Raises
    ------
    InputError
        If a key is unknown, has an invalid value or does not belong to this question.
    """
    kind = keys.get("question", "anywhere")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"question = {shorten(kind)} is unknown", fix=nearest(str(kind), KINDS))
    for key in keys:
        _demand_belongs(key, kind)
    also = _also(keys.get("also", ()))
    missing = keys.get("missing_options", "refuse")
    if missing not in ("refuse", "average"):
        raise InputError(f"missing_options = {shorten(missing)}", expected='"refuse" or "average"')
    simultaneous = keys.get("simultaneous", False)
    if not isinstance(simultaneous, bool):
        raise InputError(f"simultaneous = {shorten(simultaneous)}", expected="true or false")
    if simultaneous and kind == "overall" and not also:
        raise InputError("simultaneous is about the sites' own answers", expected='also = ["each"] with it')
    if kind == "anywhere":
        return ANYWHERE
    weights = () if kind == "each" else _weights(groups, keys.get("weights", "equal"), rows)
    control = _control(groups, keys.get("control")) if kind == "control" else None
    question = Question(kind, weights, control, simultaneous, also, missing)
    _demand_common(groups, question)
    return question


OWNERS = {
    "weights": ("overall", "control"),
    "control": ("control",),
    "simultaneous": ("each", "overall"),
    "also": ("overall",),
    "missing_options": ("overall", "control"),
}


def belongs(key: str, kind: str) -> bool:
    """Whether a key of scenarios belongs to a kind of question."""
    return kind in OWNERS.get(key, ())


def _demand_belongs(key: str, kind: str) -> None:
    if key == "question":
        return
    if key not in OWNERS:
        raise InputError(f'key "{key}" is unknown', fix=nearest(key, KEYS))
    if not belongs(key, kind):
        names = " or ".join(f'question = "{name}"' for name in OWNERS[key])
        raise InputError(f'{key} does not belong to question = "{kind}"', expected=names)


def _also(value: object) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Sequence) or any(name != "each" for name in found):
        raise InputError(f"also = {shorten(value)}", expected='["each"]')
    return tuple(dict.fromkeys(found))


def _weights(groups: Sequence[Group], value: object, rows: Sequence[int] | None) -> tuple[float, ...]:
    expected = '"equal", "rows" or a number above 0 for each site'
    if value == "equal":
        return (1.0 / len(groups),) * len(groups)
    if value == "rows":
        if rows is None:
            raise InputError(
                'weights = "rows" needs recorded data whose rows are played once',
                expected='"equal" or a number for each site',
            )
        found = [float(n) for n in rows]
    elif isinstance(value, Mapping):
        names = [group.name for group in groups]
        for name in value:
            if name not in names:
                raise InputError(f'weights: there is no site "{name}"', fix=nearest(str(name), names))
        if left := [name for name in names if name not in value]:
            raise InputError(f'weights: site "{left[0]}" has no weight', expected=expected)
        found = [value[name] for name in names]
    else:
        raise InputError(f"weights = {shorten(value)}", expected=expected)
    for group, number in zip(groups, found, strict=True):
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            raise InputError(
                f'weights: site "{group.name}" has {shorten(number)}', expected="a number above 0"
            )
    return tuple(float(number) / math.fsum(found) for number in found)


def _control(groups: Sequence[Group], value: object) -> str:
    names = dict.fromkeys(name for group in groups for name in group.arms)
    full = [f"{group.name}/{name}" for group in groups for name in group.arms]
    if value is None:
        first = next(iter(names))
        raise InputError(
            'question = "control" needs the name of the control',
            fix=f'For example: control = "{first}" (a flag: --control {shlex.quote(first)})',
        )
    if not isinstance(value, str) or (value not in names and value not in full):
        known = list(names) if shared_options(groups) else full
        fix = nearest(str(value), known)
        raise InputError(f"control = {shorten(value)} is not an option", fix=fix)
    return value


SAME_OPTIONS = (
    "the same options at every site, since an option that is tried at other sites would be judged by those "
    "sites (confounding by site)"
)
LEAVE_OUT = (
    'leave the option out, or compare averages over the sites that offer it with missing_options = "average"'
)


def _demand_common(groups: Sequence[Group], question: Question) -> None:
    """Options that some sites do not offer would be compared across different sites."""
    if question.kind == "each":
        return
    if question.control is not None and "/" in question.control:
        if shared := shared_options(groups):
            raise InputError(
                f'control = "{question.control}" names one site, but sites share the option "{shared[0]}"',
                fix=f'Write control = "{question.control.split("/", 1)[1]}"',
            )
        return
    if question.missing_options == "average":
        return
    offered = Counter(name for group in groups for name in group.arms)
    for group in groups:
        lacking = [name for name, count in offered.items() if name not in group.arms and count > 1]
        own = [name for name in group.arms if offered[name] == 1]
        if own and lacking:  # it differs from all others
            raise InputError(
                f'only site "{group.name}" offers "{own[0]}", and it has no "{lacking[0]}"',
                expected=SAME_OPTIONS,
                fix=f"If these are the same option, use one name at every site; otherwise {LEAVE_OUT}",
            )
    for group in groups:
        for name in offered:
            if name not in group.arms:
                raise InputError(
                    f'site "{group.name}" does not offer the option "{name}"',
                    expected=SAME_OPTIONS,
                    fix=LEAVE_OUT[0].upper() + LEAVE_OUT[1:],
                )


def certain_lead(question: Question, faults: int) -> float:
    """The lead above which f lying sites cannot prevent an answer, if it is the same at all honest sites.

    It is W/(1 − W − V) if W is the weight of the f heaviest sites, and V that of the next f: f/(M − 2f) for
    equal weights. Where the lead differs from site to site it must be larger on average, since the f sites
    where it is largest do not count. From 1 on, no lead is large enough.

    >>> round(certain_lead(Question("overall", (0.05,) * 20), 2), 9)
    0.125
    """
    weights = sorted(question.weights, reverse=True)
    heaviest, rest = math.fsum(weights[:faults]), math.fsum(weights[2 * faults :])
    return heaviest / rest if rest > 0 else 1.0


def lead_said(question: Question, faults: int, scale: Scale = UNIT) -> str:
    """A sentence on the lead that lying sites make necessary, on the user's scale.

    With privacy the lead in the answers is κ times that of the rewards, while a liar may still claim that all
    answers are 0 or 1: it has to be 1/κ times as large.

    >>> lead_said(Question("overall", (0.2,) * 5), 1, Scale(privacy=2.0)).partition(" is ")[2]
    'above 0.438 (more if it differs from site to site), 1/κ times what it is without privacy.'
    """
    lead = certain_lead(question, faults) / scale.slope
    liars = "1 site that lies" if faults == 1 else f"{faults} sites that lie"
    if lead > 1.0 - 1e-9:
        return f"{liars} can prevent an answer, however large the lead of the best option is."
    why = ": below that, nobody could tell the lie from a site that differs"
    if scale.privacy is not None:
        why = ", 1/κ times what it is without privacy"
    return (
        f"{liars} can prevent an answer unless the lead of the best option on the honest sites is above "
        f"{lead * (scale.high - scale.low):.3g} (more if it differs from site to site){why}."
    )


@dataclass(frozen=True)
class Cells:
    """Who can try what: the options of a question, and the weights of their cells.

    A cell is an option at a client. Clients of one site share the weight of the site equally.

    Parameters
    ----------
    options : tuple of str
        The names of the options.
    place : tuple of tuple of int
        For each client and each of its arms, the number of the option.
    site : ndarray of int
        The site of each client.
    """

    options: tuple[str, ...]
    place: tuple[tuple[int, ...], ...]
    site: NDArray[np.int64]

    @staticmethod
    def of(layout: Layout) -> Cells:
        """The cells of a layout. With the question "anywhere", options have the names of their sites."""
        control = layout.question.control
        full = layout.question.kind == "anywhere" or (control is not None and "/" in control)
        names: dict[str, int] = {}
        rows: list[tuple[int, ...]] = []
        for j, group in enumerate(layout.groups):
            own = [layout.arm(j, a) if full else name for a, name in enumerate(group.arms)]
            rows.append(tuple(names.setdefault(name, len(names)) for name in own))
        sites = [layout.group_of[client] for client in layout.clients]
        return Cells(tuple(names), tuple(rows[j] for j in sites), np.array(sites))

    @cached_property
    def offers(self) -> NDArray[np.bool_]:
        """Whether each client offers each option: (clients, options)."""
        found = np.zeros((len(self.place), len(self.options)), dtype=bool)
        for i, row in enumerate(self.place):
            found[i, list(row)] = True
        return found

    def weights(
        self, sites: Sequence[float] | NDArray[np.float64], present: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """The weight of each cell: (clients, options). The weights of an option sum to 1 over its cells.

        Parameters
        ----------
        sites : sequence of float
            The weight of each site.
        present : ndarray of bool
            The clients that take part.

        Returns
        -------
        ndarray
            An option that no client offers has no weight.
        """
        share = np.asarray(sites, dtype=np.float64)[self.site] * present
        members = np.bincount(self.site, weights=present.astype(np.float64))[self.site]
        cells = np.where(self.offers, (share / np.maximum(members, 1.0))[:, None], 0.0)
        total = cells.sum(axis=0)
        return np.asarray(cells / np.where(total > 0, total, 1.0))
