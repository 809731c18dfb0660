"""The exit codes of the commands. Code 1 is left to internal errors: Python exits with it on a traceback."""

from __future__ import annotations

OK = 0
BAD_INPUT = 2
UNDECIDED = 3
NOT_VERIFIED = 4  # verification failed, or a network is too weak
UNREACHABLE = 5
WITHDRAWN = 6  # an assumption of the promise does not hold
DISK_FULL = 75  # EX_TEMPFAIL in sysexits.h: start again when there is space
INTERRUPTED = 130
