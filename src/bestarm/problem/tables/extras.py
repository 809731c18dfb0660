"""Optional packages: imported when they are needed, with a clear error if they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from bestarm.errors import InputError


def need(package: str, what: str) -> ModuleType:
    """Import a package of the extra ``data``; InputError if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(
            f'{what} needs the package "{package}"', fix='Install it with: pip install "bestarm[data]"'
        ) from None
