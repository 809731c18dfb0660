"""Pairs: every subject of a site is tried with every option, so the rewards of one subject belong together.

The recordings of a client's options are aligned: the i-th reward of each is that of the same subject. A
method then compares options subject by subject (docs/questions-proofs.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bestarm.errors import InputError
from bestarm.problem.rewards import Recording, RewardModel
from bestarm.util.text import shorten

Scores = Mapping[str, Sequence[tuple[str, float]]]  # by option: a subject and its reward, in order

COMPLETE = "exactly one reward of every option for every subject"


def aligned(sites: Mapping[str, Mapping[str, Scores]]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """The rewards by site, client and option, in the order in which the subjects first appear.

    Parameters
    ----------
    sites : mapping
        For each site and client, the subjects and rewards of its options.

    Returns
    -------
    dict
        The i-th reward of each option of a client is that of the same subject.

    Raises
    ------
    InputError
        If a subject lacks a reward, has two of one option, or belongs to two sites or clients.

    Examples
    --------
    >>> aligned({"north": {"": {"A": [("p1", 0.0), ("p2", 1.0)], "B": [("p2", 0.5), ("p1", 0.25)]}}})
    {'north': {'': {'A': [0.0, 1.0], 'B': [0.25, 0.5]}}}
    """
    owners: dict[str, tuple[str, str]] = {}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for site, clients in sites.items():
        found[site] = {}
        for client, scores in clients.items():
            subjects = list(dict.fromkeys(name for pairs in scores.values() for name, _ in pairs))
            _demand_own(subjects, site, client, owners)
            _demand_complete(subjects, scores, f'site "{site}"' + (f', client "{client}"' if client else ""))
            by_name = {option: dict(pairs) for option, pairs in scores.items()}
            found[site][client] = {
                option: [rewards[name] for name in subjects] for option, rewards in by_name.items()
            }
    return found


def _demand_own(subjects: Sequence[str], site: str, client: str, owners: dict[str, tuple[str, str]]) -> None:
    """InputError if a subject belongs to another site or client, too: their rows would not be independent."""
    shared = [name for name in subjects if name in owners]
    if shared:
        other, its_client = owners[shared[0]]
        place, places = (f'sites "{other}" and "{site}"', "sites")
        if other == site:
            place, places = (f'clients "{its_client}" and "{client}" of site "{site}"', "clients")
        raise InputError(
            f"subject {shorten(shared[0])} appears at {place}{_more(shared)}",
            expected=f"subjects of one of the {places} only, since {places} must be independent",
            fix="If they are different subjects, give them different names. If not, average the rewards of "
            f"each subject over the {places} first, and make them one",
        )
    owners.update(dict.fromkeys(subjects, (site, client)))


def _demand_complete(subjects: Sequence[str], scores: Scores, where: str) -> None:
    for option, pairs in scores.items():
        seen: dict[str, int] = {}
        for name, _ in pairs:
            seen[name] = seen.get(name, 0) + 1
        without = [name for name in subjects if name not in seen]
        twice = [name for name in subjects if seen.get(name, 0) > 1]
        if without or twice:
            number, fix = "several rewards", "Average the rewards of a subject first"
            if without:
                number, fix = "no reward", "Add the missing rows, or leave these subjects out"
            wrong = without or twice
            raise InputError(
                f'subject {shorten(wrong[0])} has {number} of option "{option}"{_more(wrong)}',
                where=where,
                expected=COMPLETE,
                fix=f"{fix}; and check that pair names the column of the subjects",
            )


def _more(names: Sequence[str]) -> str:
    return f" ({len(names) - 1:,} more subject{'s' * (len(names) > 2)} like it)" if len(names) > 1 else ""


def demand_aligned(clients: Sequence[str], rewards: Sequence[Sequence[RewardModel]]) -> None:
    """InputError unless every client of a paired layout has recordings of the same length."""
    for client, models in zip(clients, rewards, strict=True):
        if not all(isinstance(model, Recording) for model in models) or len(_lengths(models)) > 1:
            raise InputError(
                f'the options of client "{client}" are not recordings of the same subjects',
                expected=COMPLETE,
                fix="Give each option one recording, all of the same length and in the order of the subjects",
            )


def _lengths(models: Sequence[RewardModel]) -> set[int | None]:
    return {model.limit for model in models}


def subjects_of(models: Sequence[RewardModel], start: int, times: int) -> Iterator[tuple[float, ...]]:
    """The rewards of each option for subjects `start`, …, `start + times − 1`."""
    for model in models:
        assert isinstance(model, Recording)
        yield model.values[start : start + times]
