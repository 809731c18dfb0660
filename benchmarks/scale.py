"""One Fed-SEL trial with 10² to 10⁵ clients of 10 arms each: time and memory per client.

Each size runs in a separate process, so that its peak memory can be measured; the memory of an empty process
is subtracted (read from /proc, so on Linux only). The baseline is the run with 10³ clients.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

CODE = """
import json, re, sys, time
import numpy as np
import bestarm as ba
from bestarm import kernels
import scipy.special
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
clients, empty = int(sys.argv[1]), peak()
rng = np.random.default_rng(1)
tops = rng.uniform(0.4, 0.6, clients)
means = tops[:, None] - np.linspace(0, 0.9, 10) * (tops[:, None] - 0.02)
means[0] += 0.95 - means[0, 0]
begun = time.perf_counter()
problem = ba.Problem.bernoulli(np.clip(means, 0, 1).tolist())
built = time.perf_counter()
trials = ba.study(problem, "fed-sel", delta=0.1, trials=1, seed=1, workers=1)
done = time.perf_counter()
assert trials["correct"].all()
print(json.dumps({"build": built - begun, "run": done - built, "bytes": peak() - empty,
                  "pulls": int(trials["pulls_total"][0])}))
"""


def measure() -> list[dict[str, Any]]:
    found = {}
    for clients in (10**2, 10**3, 10**4, 10**5):
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(clients)], capture_output=True, text=True, check=True
        )
        found[clients] = json.loads(done.stdout)
    base = (found[10**3]["build"] + found[10**3]["run"]) / 10**3
    return [
        {
            "clients": clients,
            "pulls": row["pulls"],
            "build, s": row["build"],
            "run, s": row["run"],
            "ms per client": 1e3 * (row["build"] + row["run"]) / clients,
            "× of 10³": (row["build"] + row["run"]) / clients / base,
            "peak MB": row["bytes"] / 1e6,
            "KB per client": row["bytes"] / clients / 1e3,
        }
        for clients, row in found.items()
    ]
