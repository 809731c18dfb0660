"""Sphinx configuration. Built offline: no outside fonts, scripts or inventories."""

from bestarm.version import __version__

project = "bestarm"
copyright = "the bestarm maintainers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bestarm {__version__}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False
