"""Exact tests and intervals for 0/1 rewards, in logarithms, vectorised.

``fisher_pvalue`` is the one-sided Fisher exact test of "a is at least as good as b". The hypergeometric
probability is computed from deviances (Loader 2000), which loses no digits to cancellation up to counts of
10⁹ and more; its tail is summed directly where it is short and by Gauss–Legendre quadrature with
Euler–Maclaurin correction where it is long. ``rejects`` only has to know on which side of a level the
p-value lies, which cheap bounds settle nearly always.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

HALF_LOG_2PI = 0.9189385332046727
DIRECT_TERMS = 1024  # a tail of at most so many terms is summed one by one
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def _stirling_error(n: Floats) -> Floats:
    """ln n! − ln(√(2πn)·(n/e)ⁿ), for n > 0."""
    from scipy.special import gammaln

    small = np.minimum(n, 16.0)
    exact = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small - HALF_LOG_2PI
    m = np.maximum(n, 16.0)
    s = 1.0 / (m * m)
    series = (
        1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360))))
    ) / m
    return np.asarray(np.where(n < 16.0, exact, series))


def deviance(x: Floats, mean: Floats) -> Floats:
    """x·ln(x/mean) + mean − x, without cancellation where x is near the mean; 0·ln 0 is 0."""
    v = (x - mean) / np.maximum(x + mean, 1e-300)
    near = np.abs(v) < 0.1
    w = np.where(near, v, 0.0)
    series, power = np.zeros_like(w), w
    for j in range(1, 9):
        power = power * w * w
        series = series + power / (2 * j + 1)
    close = (x - mean) * w + 2.0 * x * series
    with np.errstate(divide="ignore", invalid="ignore"):
        far = x * np.log(np.where(near | (x <= 0), 1.0, x / mean)) + mean - x
    return np.asarray(np.where(near, close, far))


def _log_binomial(x: Floats, n: Floats, p: Floats, q: Floats) -> Floats:
    """Log of the binomial probability, for real 0 ≤ x ≤ n and p + q = 1, both positive."""
    inside = (x > 0) & (x < n)
    a, m = np.where(inside, x, 1.0), np.where(inside, n, 2.0)
    body = (
        _stirling_error(m)
        - _stirling_error(a)
        - _stirling_error(m - a)
        - deviance(a, m * p)
        - deviance(m - a, m * q)
        - HALF_LOG_2PI
        - 0.5 * (np.log(a) + np.log1p(-a / m))
    )
    edge = np.where(x <= 0, n * np.log(q), n * np.log(p))
    return np.asarray(np.where(inside, body, edge))


def _log_pmf(x: Floats, ones: Floats, n: Floats, m: Floats) -> Floats:
    """Log probability that m draws without replacement from n+m rewards with so many ones hold x ones."""
    p, q = m / (n + m), n / (n + m)  # not 1 − p, which loses digits where m is much larger than n
    whites = _log_binomial(x, ones, p, q)
    blacks = _log_binomial(m - x, n + m - ones, p, q)
    return np.asarray(whites + blacks - _log_binomial(m, n + m, p, q))


def _log_upper_tail(k: Floats, ones: Floats, n: Floats, m: Floats) -> Floats:
    """Log of P(H ≥ k) for k above the mean of the hypergeometric H."""
    first = _log_pmf(k, ones, n, m)
    last = np.minimum(ones, m)
    ratio = _ratio(k, ones, n, m)
    # Terms fall at least geometrically by `ratio`, and ever faster: about so many matter.
    length = np.minimum(last - k, 40.0 / np.maximum(1.0 - ratio, 1e-12))
    spread = np.sqrt(np.maximum(ones * (n + m - ones), 1.0) * n * m) / (n + m) ** 1.5
    length = np.minimum(length, 12.0 * spread + 40.0)
    total = np.ones_like(first)
    short = length <= DIRECT_TERMS
    at = np.flatnonzero(short)
    at = at[np.argsort(length[at], kind="stable")]
    for piece in np.array_split(at, max(1, len(at) // 512)):  # rows of like length, few enough for memory
        if len(piece):
            terms = int(length[piece[-1]]) + 1
            total[piece] = _sum_directly(k[piece], ones[piece], n[piece], m[piece], terms)
    if not short.all():
        long = ~short
        total[long] = _sum_smoothly(k[long], ones[long], n[long], m[long], first[long], length[long])
    return np.asarray(first + np.log(total))


def _ratio(j: Floats, ones: Floats, n: Floats, m: Floats) -> Floats:
    """P(H = j+1)/P(H = j)."""
    return np.asarray(
        np.maximum((ones - j) * (m - j), 0.0) / ((j + 1.0) * np.maximum(n - ones + j + 1.0, 1.0))
    )


def _sum_directly(k: Floats, ones: Floats, n: Floats, m: Floats, terms: int) -> Floats:
    j = k[..., None] + np.arange(terms)
    ratios = _ratio(j, ones[..., None], n[..., None], m[..., None])
    return np.asarray(1.0 + np.cumprod(ratios, axis=-1).sum(axis=-1))


def _sum_smoothly(k: Floats, ones: Floats, n: Floats, m: Floats, first: Floats, length: Floats) -> Floats:
    """Σ_j P(k+j)/P(k) of a long, smooth tail: half the first term, an integral, −f′/12 + f‴/720."""

    def f(x: Floats) -> Floats:
        return np.asarray(np.exp(_log_pmf(x, *(v[..., None] for v in (ones, n, m))) - first[..., None]))

    pieces = 8
    edges = length[..., None] * np.linspace(0.0, 1.0, pieces + 1)
    integral = np.zeros_like(first)
    for i in range(pieces):
        half = (edges[..., i + 1] - edges[..., i]) / 2.0
        x = k[..., None] + edges[..., i, None] + half[..., None] * (NODES + 1.0)
        integral = integral + half * (f(x) * WEIGHTS).sum(axis=-1)
    around = f(k[..., None] + np.array([-1.5, -0.5, 0.5, 1.5]))
    third = around[..., 3] - 3.0 * around[..., 2] + 3.0 * around[..., 1] - around[..., 0]
    slope = around[..., 2] - around[..., 1] - third / 24.0
    return np.asarray(0.5 + integral - slope / 12.0 + third / 720.0)


def fisher_pvalue(
    sa: ArrayLike, sb: ArrayLike, n: ArrayLike, m: ArrayLike | None = None, log: bool = False
) -> Floats:
    """One-sided p-value of "a is at least as good as b": P(Hypergeom(n+m, sa+sb, m) ≥ sb).

    `sa` ones were seen in `n` rewards of a, `sb` ones in `m` (by default also n) rewards of b. It rises
    with sa and falls with sb. With ``log=True`` the natural logarithm is given, which does not underflow.

    >>> round(float(fisher_pvalue(1, 3, 4)), 6)          # the lady tasting tea
    0.242857
    >>> round(float(fisher_pvalue(10**8, 5 * 10**8, 10**9, log=True)))
    -203498460
    """
    sa, sb, n = (np.asarray(x, dtype=np.float64) for x in (sa, sb, n))
    m = n if m is None else np.asarray(m, dtype=np.float64)
    sa, sb, n, m = np.broadcast_arrays(sa, sb, n, m)
    if not ((sa >= 0) & (sa <= n) & (sb >= 0) & (sb <= m) & (n >= 1) & (m >= 1)).all():
        raise InputError("these are no counts", where="fisher_pvalue", expected="0 ≤ sa ≤ n and 0 ≤ sb ≤ m")
    shape = sa.shape
    sa, sb, n, m = (x.reshape(-1) for x in (sa, sb, n, m))
    ones = sa + sb
    upper = sb * (n + m) > ones * m  # b did better than its share: the upper tail is the small one
    out = np.zeros(sa.shape)
    if upper.any():
        out[upper] = _log_upper_tail(sb[upper], ones[upper], n[upper], m[upper])
    rest = ~upper & (sa < np.minimum(ones, n)) & (sb > 0)
    if rest.any():
        # P(H ≥ sb) = 1 − P(H ≤ sb−1), and H ≤ sb−1 means that a got at least sa+1 of the ones.
        below = _log_upper_tail(sa[rest] + 1.0, ones[rest], m[rest], n[rest])
        out[rest] = np.log1p(-np.exp(np.minimum(below, -1e-300)))
    logs = np.minimum(out, 0.0).reshape(shape)
    return np.asarray(logs if log else np.exp(logs))


def rejects(sa: ArrayLike, sb: ArrayLike, n: ArrayLike, level: ArrayLike) -> Mask:
    """Whether p(a, b) ≤ level, with n rewards each and a level below one half.

    An arm that is not behind is never rejected: its p is over one half. One term of the tail is at most p,
    and the geometric series with its first ratio is at least p; only where the level lies between the two is
    the tail summed.
    """
    sa, sb, n, level = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (sa, sb, n, level)))
    out = np.zeros(sa.shape, dtype=bool)
    ahead = sb > sa
    if not ahead.any():
        return out
    a, b, size, bound = sa[ahead], sb[ahead], n[ahead], np.log(level[ahead])
    first = _log_pmf(b, a + b, size, size)
    # A hair of slack keeps rounding from settling what only the sum can settle.
    small = first + -np.log1p(-np.minimum(_ratio(b, a + b, size, size), 1.0 - 1e-12)) <= bound - 1e-9
    unclear = ~small & (first <= bound + 1e-9)
    if unclear.any():
        small[unclear] = fisher_pvalue(a[unclear], b[unclear], size[unclear], log=True) <= bound[unclear]
    out[ahead] = small
    return out


def clopper_pearson(successes: ArrayLike, n: ArrayLike, level: ArrayLike) -> tuple[Floats, Floats]:
    """Exact lower and upper bounds for a probability, each wrong with probability at most `level`."""
    from scipy.special import betainccinv, betaincinv

    s, n, level = (np.asarray(x, dtype=np.float64) for x in (successes, n, level))
    with np.errstate(invalid="ignore"):
        low = np.where(s > 0, betaincinv(np.maximum(s, 1.0), n - s + 1.0, level), 0.0)
        high = np.where(s < n, betainccinv(s + 1.0, np.maximum(n - s, 1.0), level), 1.0)
    return np.asarray(low), np.asarray(high)
