"""Sphinx configuration. Built offline: no outside fonts, scripts or inventories."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs import commands, fields, gallery, notebooks, promises, showcase

from bestarm.version import __version__

project = "bestarm"
copyright = "the bestarm maintainers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # a notebook is turned into Markdown as it is read
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bestarm {__version__}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["book.css"]
html_js_files = ["copy.js"]
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False
smartquotes = False  # commands and values can be copied as they are shown


def _made_now(app: Any, page: str, source: list[str]) -> None:
    if page == "cli":
        source[0] = source[0].replace(commands.PLACE, commands.reference())
    elif page == "gallery":
        source[0] = source[0].replace(gallery.PLACE, gallery.markdown())
    elif page == "index":
        source[0] = source[0].replace(showcase.PLACE, showcase.markdown())
    elif page == "guarantees":
        source[0] = promises.folded(source[0])
    elif page == "accidents":
        source[0] = promises.folded_cells(source[0])
    elif app.env.doc2path(page).suffix == ".ipynb":
        source[0] = notebooks.to_markdown(source[0])
    else:
        source[0] = fields.fill(page, source[0])


def _made_each_time(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> set[str]:
    """The pages that are made from the software: they may change although their files have not."""
    return {"cli", "gallery", "index", *fields.PLACES} & env.found_docs


def _gallery(app: Any, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        showcase.make(Path(app.outdir) / "pages")
        showcase.copy_pictures(Path(app.outdir) / "_images")


def setup(app: Any) -> None:
    app.connect("env-get-outdated", _made_each_time)
    app.connect("source-read", _made_now)
    app.connect("build-finished", _gallery)
