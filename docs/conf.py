"""The site of the documentation: `make docs` builds it with Sphinx into build/docs.

The pages are Markdown (MyST), the reference is made from the docstrings (autodoc, napoleon).
"""

import builtins
import importlib
import inspect
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref, pending_xref_condition
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PACKAGES = ("zkwire", "recipes", "zkwire.blocking", "zkwire.testing")

project = "zkwire"
author = "the authors of zkwire"
copyright = "the authors of zkwire, Apache-2.0"
version = release = importlib.import_module("zkwire").__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples"]
root_doc = "index"

# Pages of the site whose text stands outside of docs/.
OUTSIDE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "reporting": "SECURITY.md"}

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Cancellation", "Order", "Requests"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
smartquotes_action = "D"  # only dashes: quotes stay as in the code
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
# `name` in a docstring is code, and a link where the reference has that name.
default_role = "py:obj"

nitpicky = True
# Types that are not ours or are private have no entry; tests/docs/test_site.py checks that every public name has one.
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = "zkwire"
html_show_sourcelink = False


def _public() -> dict[str, str]:
    """Return the public names of all classes and functions by the names under which they are defined."""
    public = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ["Portal"]):
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                public[f"{thing.__module__}.{thing.__qualname__}"] = f"{package}.{name}"
    return public


PUBLIC = _public()
autodoc_default_options = {
    "members": True,
    # Members of bases that have an entry of their own, or are not ours, are not repeated.
    "inherited-members": ",".join(
        {name.rpartition(".")[2] for name in PUBLIC.values()}
        | {"Record", "Exception", "BaseException", "tuple", "Enum", "IntEnum", "IntFlag", "Flag", "int", "Protocol"}
    ),
}


# Classes that callers make, although their signature names a private type.
MADE_BY_CALLERS = {"zkwire.testing.Server", "zkwire.testing.RealEnsemble"}


def _linked_by_its_definition(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement
) -> nodes.reference | None:
    """Link a type that a signature names by the module that defines it, which is private."""
    target = PUBLIC.get(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or target is None:
        return None
    return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, text)


def _without_links_of_builtins(app: Sphinx, page: nodes.document) -> None:
    """Sphinx looks for an attribute of ours that is called like the built-in type, such as `type`."""
    for link in list(page.findall(pending_xref)):
        if link.get("refdomain") == "py" and hasattr(builtins, link["reftarget"]):
            in_signature = isinstance(link.next_node(), pending_xref_condition)
            link.replace_self(nodes.Text(link["reftarget"]) if in_signature else link.children)


def _public_bases(app: Sphinx, name: str, thing: type, options: object, bases: list[type]) -> None:
    bases[:] = [base for base in bases if f"{base.__module__}.{base.__qualname__}" in PUBLIC] or [object]


def _without_fields_of_tuples(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Python's own text says which number a field has; the docstring of the class says what it is."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def _signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Leave out how a class is made that only the package itself makes: its signature names private types."""
    types = re.findall(r"\b(?:zkwire|recipes)\.[\w.]+", signature or "")
    if what == "class" and name not in MADE_BY_CALLERS and not PUBLIC.keys() >= set(types):
        return "", returns
    if name == "zkwire.connect":
        return signature or "", "Client, by await or async with"
    return None


def _examples(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Make an indented block of a docstring code; the text of a section (`Args:`) follows without an empty line."""
    for number in range(len(lines) - 1, 1, -1):
        before = lines[number - 2]
        starts = lines[number].startswith("    ") and not lines[number - 1] and before and before[0] not in " -"
        if starts and not before.endswith("::"):
            lines[number:number] = ["::", ""]


def _title(page: str) -> str:
    """Return the title of a page up to its colon: the text of links that show a file name in the repository."""
    path = ROOT / OUTSIDE.get(page, f"docs/{page}.md")
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").partition(":")[0]


def _text_from_outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Give pages whose text stands outside of docs/ that text, and links to them the address on the site."""
    if page in OUTSIDE:
        source[0] = (ROOT / OUTSIDE[page]).read_text(encoding="utf-8").replace("](docs/", "](")
    for name, outside in OUTSIDE.items():
        source[0] = re.sub(rf"\]\((\.\./)?{outside}", f"]({name}.md", source[0])
    source[0] = re.sub(r"\[[\w./-]+\.md\]\(([\w-]+)\.md", lambda link: f"[{_title(link[1])}]({link[1]}.md", source[0])
    source[0] = re.sub(r'<a id="([\w-]+)"></a>', r"[]{#\1}", source[0])  # an anchor, as GitHub takes it


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("missing-reference", _linked_by_its_definition)
    app.connect("doctree-read", _without_links_of_builtins)
    app.connect("autodoc-process-bases", _public_bases)
    app.connect("autodoc-skip-member", _without_fields_of_tuples)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _examples, priority=400)  # before napoleon
    app.connect("source-read", _text_from_outside)
