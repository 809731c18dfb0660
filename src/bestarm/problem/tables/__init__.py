"""Recorded rewards from any table: files, frames and databases, each row counted once."""

from bestarm.problem.tables.columns import Columns
from bestarm.problem.tables.propose import Reading, only_reading, propose
from bestarm.problem.tables.read import read_rows

__all__ = ["Columns", "Reading", "only_reading", "propose", "read_rows"]
