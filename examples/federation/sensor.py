import random
import sys

arm, times = sys.argv[1], int(sys.argv[2])
mean = {"a": 0.8, "b": 0.2, "c": 0.5, "d": 0.3}[arm]
for _ in range(times):
    print(50 * random.betavariate(9 * mean, 9 * (1 - mean)))
