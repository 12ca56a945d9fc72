"""A record as one HTML file: images inside, nothing fetched, nothing run."""

import copy
import re

import bleach  # type: ignore[import-untyped]
from nbconvert import HTMLExporter
from nbformat import NotebookNode

from reproducers.record.read import Record
from reproducers.texts import plain

__all__ = ["html_page"]

_TAGS = frozenset(
    {"a", "b", "blockquote", "br", "code", "del", "details", "div", "em", "h1", "h2", "h3", "h4", "hr", "i", "li", "ol"}
    | {"p", "pre", "s", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
"""What Markdown makes, and nothing that runs or fetches; anything else is taken out of outputs."""

_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    'img-src data:; font-src data:">'
)
"""Whatever an output contains, a browser that shows the page asks no server for anything and runs no script."""


def html_page(record: Record) -> str:
    """Return a record as a page that needs no network: no MathJax, no scripts or styles from elsewhere."""
    nothing = {"mathjax_url": "", "require_js_url": "", "jquery_url": "", "mermaid_js_url": ""}
    exporter = HTMLExporter(template_name="lab", sanitize_html=True, **nothing)  # type: ignore[no-untyped-call]
    exporter.register_filter("clean_html", _cleaned)  # type: ignore[no-untyped-call]
    text, _ = exporter.from_notebook_node(_harmless(record.node))
    without_scripts = re.sub(r"(?is)<script\b.*?</script\s*>", "", str(text))  # the template's own
    return without_scripts.replace("<head>", f"<head>{_POLICY}", 1)


def _cleaned(markup: str) -> str:
    """What an output may have of HTML; nbconvert's own list lacks headings, paragraphs and folds."""
    cleaned: str = bleach.clean(markup, tags=_TAGS, attributes={"a": ["href"], "*": ["class"]}, strip=True)
    return cleaned


def _harmless(node: NotebookNode) -> NotebookNode:
    """A copy without control characters in its texts."""
    node = copy.deepcopy(node)
    for cell in node.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = plain(output.text)
            for mime, value in output.get("data", {}).items():
                if mime.startswith("text/") and isinstance(value, str):
                    output["data"][mime] = plain(value)
    return node
