"""The documentation's site: ``make docs`` builds it, and a broken link is an error."""

import gc
import sys
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("jobs", "snapshots", "plugins", "")]

from scripts.reference import fill_page, link_citations  # noqa: E402

gc.disable()  # what a build makes stays: a quarter of its time went into looking through that

project = "Headrace"
author = "the authors of Headrace"
release = version = installed("headrace")
copyright = "the authors of Headrace; Apache License 2.0"  # noqa: A001

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns: list[str] = []
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": False}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 100

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["front.css"]
html_title = f"Headrace {release}"
html_show_sphinx = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: object) -> None:
    """Pages say with a comment where what is generated stands."""
    app.connect("source-read", fill_page)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", link_citations)  # type: ignore[attr-defined]
    app.add_lexer("transcript", _transcript())  # type: ignore[attr-defined]


def _transcript() -> type:
    from pygments.lexers.special import TextLexer

    return TextLexer
