"""Groups, their arms and their clients: what every participant knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from bestarm.errors import InputError
from bestarm.problem.question import ANYWHERE, Question

MAX_NAME = 200
MAX_CLIENTS = 1_000_000


@dataclass(frozen=True)
class Group:
    """An arm-set and the clients that can pull it. If `binary`, every reward of every arm is 0 or 1."""

    name: str
    arms: tuple[str, ...]
    clients: tuple[str, ...]
    binary: bool = True

    def __post_init__(self) -> None:
        if not self.arms:
            raise InputError(
                "the group has no arms", where=f'group "{self.name}"', expected="at least one arm"
            )
        if not self.clients:
            raise InputError(
                "the group has no clients", where=f'group "{self.name}"', expected="at least one client"
            )
        _check_names("arm", self.arms, f'group "{self.name}"')


@dataclass(frozen=True)
class Layout:
    """The groups and the question, as every participant knows them.

    If `finite`, a client's rewards may run out. If `paired`, the i-th reward of every option of a client is
    that of the same subject.
    """

    groups: tuple[Group, ...]
    finite: bool = False
    question: Question = ANYWHERE
    paired: bool = False

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("there are no groups", expected="at least one group with at least one arm")
        _check_names("group", [g.name for g in self.groups], "")
        _check_names("client", self.clients, "")
        if self.paired:
            self._demand_pairs()

    def _demand_pairs(self) -> None:
        """InputError if the rows of a subject can't be compared, whatever the question."""
        if not self.finite:
            raise InputError("pairs need recorded rewards, each of which is played once")
        if self.question.also:
            raise InputError(
                'also = ["each"] is not supported with pairs: the best option overall and that of a site may '
                "differ, and subjects are compared with one option at a time",
                fix='Leave out also, or run question = "each" as well, with half of delta for each run',
            )
        common = set(self.groups[0].arms)
        named = self.question.control is not None and "/" in self.question.control
        if self.question.kind in ("overall", "control") and (
            any(set(group.arms) != common for group in self.groups) or (named and len(self.groups) > 1)
        ):
            raise InputError(
                "pairs need the same options at every site",
                expected="one reward of every option for each subject",
                fix='Leave out options that some sites do not offer, or ask question = "each"',
            )

    @cached_property
    def clients(self) -> tuple[str, ...]:
        return tuple(client for group in self.groups for client in group.clients)

    @cached_property
    def group_of(self) -> dict[str, int]:
        """Client name -> index of its group."""
        return {client: j for j, group in enumerate(self.groups) for client in group.clients}

    @cached_property
    def arm_counts(self) -> tuple[int, ...]:
        return tuple(len(group.arms) for group in self.groups)

    @cached_property
    def binary(self) -> tuple[bool, ...]:
        """Whether every reward of a group is 0 or 1, for each group."""
        return tuple(group.binary for group in self.groups)

    def arm(self, group: int, arm: int) -> str:
        """An arm's full name.

        >>> Layout((Group("west", ("s1", "s2"), ("w",)),)).arm(0, 1)
        'west/s2'
        """
        return f"{self.groups[group].name}/{self.groups[group].arms[arm]}"


def _check_names(kind: str, names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(
                f"{kind} name {name!r} can't be used",
                where=where,
                expected=f"1 to {MAX_NAME} printable characters",
            )
        if "/" in name or name == "*":
            raise InputError(
                f'{kind} name "{name}" can\'t be used',
                where=where,
                expected='a name without "/" (full names are group/arm) and other than "*"',
            )
        if name in seen:
            raise InputError(f'{kind} name "{name}" is used twice', where=where, expected="each name once")
        seen.add(name)
