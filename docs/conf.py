"""How the site is built by `make docs`: Sphinx, its theme, the gallery; nothing is fetched in building or reading."""

import os
import re
import sys
import warnings
from pathlib import Path

import mercer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for mathml
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*")

project = "mercer"
author = "The mercer developers"
copyright = "The mercer developers, BSD licence"  # the name that Sphinx asks for
version = release = mercer.__version__

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "gallery/GALLERY_HEADER.rst",
    "reproduce/summary.md",
    "reproduce/calls.md",
]
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "dollarmath", "substitution"]
myst_substitutions = {"version": release}
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples" / "gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "mercer"
html_static_path = ["_static"]
html_css_files = ["mercer.css"]
html_context = {"default_mode": "auto"}
html_search_scorer = str(HERE / "search_scores.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "show_nav_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
#: Pages without pages below them have no list of them at the side.
html_sidebars = {name: [] for name in ("index", "start", "choose", "benchmarks", "changes", "contributing")}


def name_thumbnails(app, name, source):
    """Say what the small pictures of the gallery show: its titles stand below them."""
    if name == "gallery/index":
        below = r'(:alt:)[ ]*\n(((?!:alt:).)*?<div class="sphx-glr-thumbnail-title">)(.*?)</div>'
        source[0] = re.sub(below, r"\1 Picture of the example: \4\n\2\4</div>", source[0], flags=re.DOTALL)


def close_up(app, name, source):
    """Leave out the empty line at the end of examples, which doctest needs and readers do not."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


#: Parameters that users set first; the others follow in the order of the docstring.
FIRST = ("kernel", "loss", "class_weight", "monotonic_cst", "n_basis", "n_inducing", "n_components", "regularization",
         "time_budget", "memory_limit", "random_state", "categorical_features", "text_features", "cyclic_features",
         "spherical_features", "device", "verbose")  # fmt: skip


def sort_parameters(app, what, name, obj, options, lines):
    """Put the parameters of a class that users set first before its internals."""
    if what != "class" or "Parameters" not in lines:
        return
    begin = lines.index("Parameters") + 2
    end = next((i for i in range(begin + 1, len(lines)) if lines[i].startswith("---")), len(lines) + 1) - 1
    entries = []
    for line in lines[begin:end]:
        if line and not line.startswith(" "):
            entries.append([])
        if entries:
            entries[-1].append(line)
    names = [entry[0].split(":")[0].split(",")[0].strip() for entry in entries]
    rank = [FIRST.index(one) if one in FIRST else len(FIRST) for one in names]
    order = sorted(range(len(entries)), key=rank.__getitem__)
    lines[begin:end] = [line for i in order for line in [*entries[i], ""]]


def setup(app):
    for change in (name_thumbnails, close_up):
        app.connect("source-read", change)
    app.connect("autodoc-process-docstring", sort_parameters, priority=400)  # before numpydoc reads them
