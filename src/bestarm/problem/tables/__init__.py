"""Recorded rewards from any table: files, frames and databases, each row counted once."""

from bestarm.problem.tables.columns import Columns
from bestarm.problem.tables.propose import Reading, propose
from bestarm.problem.tables.read import read_rows

__all__ = ["Columns", "Reading", "propose", "read_rows"]
