"""The version, in the one place that holds it."""

from __future__ import annotations

__version__ = "0.1.0"
