"""Exact tests and intervals for 0/1 rewards, in logarithms, vectorised.

``fisher_pvalue`` is the one-sided Fisher exact test of "a is at least as good as b". The hypergeometric
probability is computed from deviances (Loader 2000), which loses no digits to cancellation up to counts of
10⁹ and more; its tail is summed directly where it is short and by Gauss–Legendre quadrature with
Euler–Maclaurin correction where it is long. ``rejects`` only needs to know whether the p-value is above or
below a level, which cheap bounds nearly always decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
HALF_LOG_2PI = 0.9189385332046727
MANY, EACH = 1 << 15, 100  # sums in total and per rival, above which a shared search is faster
DIRECT_TERMS = 1024  # a tail of at most this many terms is summed directly

# Gauss–Legendre with 24 nodes on each eighth of [0, 1].
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES = ((NODES + 1.0) / 16.0 + np.arange(8)[:, None] / 8.0).reshape(-1)
WEIGHTS = np.tile(WEIGHTS / 16.0, 8)


def _stirling_error(n: Floats) -> Floats:
    """ln n! − ln(√(2πn)·(n/e)ⁿ), for n > 0."""
    s = 1.0 / np.maximum(n * n, 1.0)
    out = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * (691 / 360360)))))) / n
    small = n < 16.0
    if small.any():
        from scipy.special import gammaln

        m = n[small]
        out[small] = gammaln(m + 1.0) - (m + 0.5) * np.log(m) + m - HALF_LOG_2PI
    return np.asarray(out)


def deviance(x: Floats, mean: Floats) -> Floats:
    """x·ln(x/mean) + mean − x, without cancellation where x is near the mean; 0·ln 0 is 0."""
    v = (x - mean) / np.maximum(x + mean, 1e-300)
    near = np.abs(v) < 0.1
    out = np.zeros(v.shape)
    if near.any():
        w = v * near
        s = w * w
        series = s * (1 / 11 + s * (1 / 13 + s * (1 / 15 + s / 17)))
        series = s * (1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + series))))
        out = (x - mean) * w + 2.0 * x * w * series
    if not near.all():
        far = ~near
        a, b = (np.broadcast_to(y, v.shape)[far] for y in (x, mean))
        with np.errstate(divide="ignore"):  # infinite where the mean is 0
            out[far] = a * np.log(np.where(a > 0, a / b, 1.0)) + b - a
    return np.asarray(out)


def _log_binomial(x: Floats, n: Floats, p: Floats, q: Floats) -> Floats:
    """Log of the binomial probability, for real 0 ≤ x ≤ n and p + q = 1, both positive."""
    inside = (x > 0) & (x < n)
    whole = inside.all()
    a, m = (x, n) if whole else (np.where(inside, x, 1.0), np.where(inside, n, 2.0))
    b = m - a
    errors = _stirling_error(np.array([m, a, b]))
    misfit = deviance(np.array([a, b]), np.array([m * p, m * q]))
    body = (
        errors[0] - errors[1] - errors[2] - misfit[0] - misfit[1] - 0.5 * np.log(a * (b / m)) - HALF_LOG_2PI
    )
    if whole:
        return np.asarray(body)
    return np.asarray(np.where(inside, body, n * np.log(np.where(x <= 0, q, p))))


def _log_pmf(x: Floats, ones: Floats, n: Floats, m: Floats) -> Floats:
    """Log probability of x ones among m draws without replacement from n+m rewards that contain `ones`."""
    both = n + m
    p, q = m / both, n / both  # not 1 − p, which loses digits where m is much larger than n
    x, ones, m, both = np.broadcast_arrays(x, ones, m, both)
    whites, blacks, sample = _log_binomial(np.array([x, m - x, m]), np.array([ones, both - ones, both]), p, q)
    return np.asarray(whites + blacks - sample)


def _log_upper_tail(k: Floats, ones: Floats, n: Floats, m: Floats, first: Floats | None = None) -> Floats:
    """Log of P(H ≥ k) for k above the mean of the hypergeometric H; `first` is log P(H = k), if known."""
    if first is None:
        first = _log_pmf(k, ones, n, m)
    last = np.minimum(ones, m)
    ratio = _ratio(k, ones, n, m)
    # Terms decrease at least geometrically by `ratio`, and ever faster: about this many matter.
    length = np.minimum(last - k, 40.0 / np.maximum(1.0 - ratio, 1e-12))
    length = np.minimum(length, 12.0 * _spread(ones, n, m) + 40.0)
    total = np.ones_like(first)
    short = length <= DIRECT_TERMS
    at = np.flatnonzero(short)
    at = at[np.argsort(length[at], kind="stable")]
    for piece in np.array_split(at, max(1, len(at) // 512)):  # rows of similar length, to limit memory
        if len(piece):
            terms = int(length[piece[-1]]) + 1
            total[piece] = _sum_directly(k[piece], ones[piece], n[piece], m[piece], terms)
    at = np.flatnonzero(~short)
    for piece in np.array_split(at, max(1, len(at) // 512)):
        if len(piece):
            total[piece] = _sum_smoothly(*(v[piece] for v in (k, ones, n, m, first, length)))
    return np.asarray(first + np.log(total))


def _spread(ones: Floats, n: Floats, m: Floats) -> Floats:
    """The standard deviation of the hypergeometric, up to a factor close to 1."""
    return np.asarray(np.sqrt(np.maximum(ones * (n + m - ones), 1.0) * n * m) / (n + m) ** 1.5)


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
    points = np.concatenate([length[:, None] * NODES, np.tile([-1.5, -0.5, 0.5, 1.5], (len(k), 1))], axis=1)
    logs = _log_pmf(k[:, None] + points, *(v[:, None] for v in (ones, n, m)))
    f = np.exp(logs - first[:, None])
    integral = length * (f[:, :-4] @ WEIGHTS)
    around = f[:, -4:].T
    third = around[3] - 3.0 * around[2] + 3.0 * around[1] - around[0]
    slope = around[2] - around[1] - third / 24.0
    return np.asarray(0.5 + integral - slope / 12.0 + third / 720.0)


def fisher_pvalue(
    sa: ArrayLike, sb: ArrayLike, n: ArrayLike, m: ArrayLike | None = None, log: bool = False
) -> Floats:
    """One-sided p-value of "a is at least as good as b": P(Hypergeom(n+m, sa+sb, m) ≥ sb).

    It increases with `sa` and decreases with `sb`. All arguments broadcast.

    Parameters
    ----------
    sa, sb : array_like of int
        The number of rewards of a, and of b, that are 1.
    n, m : array_like of int
        The number of rewards of a, and of b; `m` is `n` by default.
    log : bool
        Return the natural logarithm, which does not underflow.

    Returns
    -------
    ndarray of float64
        Exact to about ten digits.

    Raises
    ------
    InputError
        Unless 0 ≤ sa ≤ n and 0 ≤ sb ≤ m, with n and m at least 1.

    Examples
    --------
    >>> round(float(fisher_pvalue(1, 3, 4)), 6)          # the lady tasting tea
    0.242857
    >>> round(float(fisher_pvalue(10**8, 5 * 10**8, 10**9, log=True)))
    -203498460
    """
    sa, sb, n = (np.asarray(x, dtype=np.float64) for x in (sa, sb, n))
    m = n if m is None else np.asarray(m, dtype=np.float64)
    sa, sb, n, m = np.broadcast_arrays(sa, sb, n, m)
    if not ((sa >= 0) & (sa <= n) & (sb >= 0) & (sb <= m) & (n >= 1) & (m >= 1)).all():
        raise InputError("these are not counts", where="fisher_pvalue", expected="0 ≤ sa ≤ n and 0 ≤ sb ≤ m")
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


def rejects(sa: ArrayLike, sb: ArrayLike, n: ArrayLike, level: ArrayLike, m: ArrayLike | None = None) -> Mask:
    """Whether p(a, b) ≤ level, with n rewards of a, m (by default also n) of b, and a level below one half.

    An arm that is not behind is never rejected: its p is at least one half. The terms of the tail decrease
    ever faster, so p is at most the geometric series with its first ratio, and at least any number of terms
    times the last of them. The tail is summed only where the level lies between such bounds. If many arms are
    compared with few rivals at one look, they share a search for the largest sum that is rejected.
    """
    if np.size(sa) > MANY and np.ndim(n) == np.ndim(level) == np.ndim(n if m is None else m) == 0:
        rivals, back = np.unique(np.asarray(sb, dtype=np.float64), return_inverse=True)
        if np.size(sa) > EACH * len(rivals):
            return np.asarray(np.asarray(sa) <= _critical(rivals, n, level, m)[back.reshape(np.shape(sb))])
    sizes = (n, n if m is None else m)
    sums = tuple(np.asarray(x, dtype=np.float64) for x in (sa, sb, *sizes, level))
    first, second, of_a, of_b, most = np.broadcast_arrays(*sums)
    out = np.zeros(first.shape, dtype=bool)
    ahead = second * of_a > first * of_b
    if not ahead.any():
        return out
    k, na, nb, bound = second[ahead], of_a[ahead], of_b[ahead], np.log(most[ahead])
    ones = first[ahead] + k
    term = _log_pmf(k, ones, na, nb)
    # A small slack, so that rounding never decides a case that needs the sum.
    small = term - np.log1p(-np.minimum(_ratio(k, ones, na, nb), 1.0 - 1e-12)) <= bound - 1e-9
    unclear = np.flatnonzero(~small & (term <= bound + 1e-9))
    if len(unclear):
        k, ones, na, nb, term, bound = (x[unclear] for x in (k, ones, na, nb, term, bound))
        further = np.minimum(np.floor(_spread(ones, na, nb)), np.minimum(ones, nb) - k)
        near = np.log1p(further) + _log_pmf(k + further, ones, na, nb) <= bound + 1e-9
        k, ones, na, nb, term, bound = (x[near] for x in (k, ones, na, nb, term, bound))
        small[unclear[near]] = _log_upper_tail(k, ones, na, nb, term) <= bound
    out[ahead] = small
    return out


def _critical(sb: Floats, n: ArrayLike, level: ArrayLike, m: ArrayLike | None) -> Floats:
    """The largest sa with p(sa, sb) ≤ level, by bisection, as p increases with sa; −1 if there is none."""
    low, high = np.full(sb.shape, -1.0), np.ceil(sb * np.asarray(n) / np.asarray(n if m is None else m))
    while len(at := np.flatnonzero(high - low > 1.0)):
        middle = np.floor((low[at] + high[at]) / 2.0)
        lost = rejects(middle, sb[at], n, level, m)
        low[at], high[at] = np.where(lost, middle, low[at]), np.where(lost, high[at], middle)
    return low
