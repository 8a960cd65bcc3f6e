"""How Sphinx makes the site of what ``pages.py`` has laid out: see ``make docs``."""

from __future__ import annotations

import rankfold

project = "rankfold"
version = release = rankfold.__version__
html_title = f"rankfold {release}"
html_theme = "pydata_sphinx_theme"
html_show_copyright = html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
}
html_sidebars = {"index": [], "changelog": [], "glossary": []}

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = napoleon_use_param = False
python_maximum_signature_line_length = 88
suppress_warnings = ["myst.strikethrough"]
nitpicky = False
