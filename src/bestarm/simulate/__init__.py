"""Simulation in one process: runs, networks of peers, the journal of a run, and attacks."""

from bestarm.simulate import attacks  # noqa: F401 (registers them)
