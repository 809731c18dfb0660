"""The scenario that `bestarm new` writes."""

from __future__ import annotations

TEMPLATE = """\
# A scenario for bestarm. Check it with:  bestarm check {file}
# Run it with:                            bestarm run {file}

delta = 0.05            # the answer may be wrong with at most this probability
goal = "max"            # "max": the highest mean is best; "min": the lowest
# unit = "ms"           # what rewards are measured in, for reports
method = "bet"          # how the sites work together: "fisher" if some may lie; "fed-sel" as in the paper
prefer = "balanced"     # what to save: "pulls", "rounds" or "bits", or "balanced"
# budget = 1000000      # the most pulls of one client; the verdict may then be "undecided"
# max_rounds = 500      # the most rounds of the run
# epsilon = 0.01        # accept an arm this close to the best
# seed = 7              # the same seed gives the same run

# One [[group]] for each site. An arm is a name and the mean of its 0/1 rewards;
# an arm of another kind is a table.
[[group]]
name = "north"
arms = {{ a = 0.62, b = 0.48, c = 0.30 }}

[[group]]
name = "south"
arms = {{ d = 0.50, e = {{ kind = "beta", a = 2, b = 5 }} }}

# Several clients that try the same arms: clients = 5 in the group. If some of them may lie, say how many:
# byzantine = 1 at the top (a group then needs 2 * byzantine + 1 clients), and, to see what they could do:
# [[adversary]]
# group = "north"
# attack = "extreme"

# Rewards on another scale: bounds = [0, 5] in the group, and means between 0 and 5.
# Rewards from a file, instead of the groups above ("bestarm new FILE" fills this in):
# [data]
# csv = "ratings.csv"      # relative to this file
# group = "city"           # the columns that name the group and the arm
# arm = "place"
# reward = "rating"        # or: successes = "clicks", trials = "views"
# bounds = [0, 5]
# where = {{ year = 2024 }}  # only these rows
# min_count = 8            # only arms with at least this many rewards
# missing = "skip"         # leave out rows without a number
# rows = "resample"        # a simulation: draw from these rows again and again, instead of each once
"""
