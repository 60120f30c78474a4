"""Sphinx configuration of the site; `make docs` builds it.

The sources are the whole checkout, so that pages of docs/ and of results/ link to each other as
they do on disk: `sphinx-build -c docs . docs/_build/html`.
"""

import sys
from pathlib import Path

import revbis

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))

project = "revbis"
author = "The revbis authors"
copyright = author  # noqa: A001
version = release = revbis.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "revbis_site"]
root_doc = "docs/index"
include_patterns = ["docs/**", "results/README.md", "results/**/README.md", "CHANGELOG.md"]
# Folders that no page is in are not searched: .venv and runs can be large.
exclude_patterns = ["docs/_*"] + [
    path.name for path in ROOT.iterdir() if path.name not in {"docs", "results", "CHANGELOG.md"}
]

myst_heading_anchors = 4  # links to a heading are checked, too
myst_links_external_new_tab = True

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = False  # types are in the signature
napoleon_use_ivar = True  # attributes are listed in the class, not described a second time
add_module_names = False
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
default_role = "code"  # a `name` in a docstring is code
html_math_renderer = "mathml"  # of browsers: the pages ask the network for nothing

html_theme = "furo"
html_title = f"revbis {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

# For `make docs-links`. These answer browsers only, or rarely.
linkcheck_ignore = [r"https://openreview\.net/.*"]
linkcheck_timeout = 20
