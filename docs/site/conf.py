"""Settings of Sphinx for the site; `make site` runs it on a staged copy of the pages (build.py)."""

from typing import Any

project = "heshare"
author = "The heshare maintainers"
html_title = "heshare"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"

# Anchors as on GitHub, so that the links in the pages work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

# A name in single backticks is code, and a link where the site documents it.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
maximum_signature_line_length = 100

html_theme = "furo"
html_copy_source = False
# The summaries are fetched from the pages, which a browser refuses for files.
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "monokai"


_ATTRIBUTES: dict[str, list[str]] = {}


def _before_napoleon(app: object, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Keep an attribute's docstring: napoleon takes the text before its first colon for a type."""
    if what in ("attribute", "data", "property"):
        _ATTRIBUTES[name] = list(lines)


def _after_napoleon(app: object, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Escape bars, which docstrings use for absolute values and reStructuredText for substitutions."""
    lines[:] = [line.replace("|", "\\|") for line in _ATTRIBUTES.pop(name, lines)]


def setup(app: Any) -> None:
    """Register the hooks."""
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
