"""A record as one HTML file: images inside, nothing fetched."""

from nbconvert import HTMLExporter

from reproducers.record.read import Record

__all__ = ["html_page"]


def html_page(record: Record) -> str:
    """Return a record as a page that needs no network: no MathJax, no scripts or styles from elsewhere."""
    nothing = {"mathjax_url": "", "require_js_url": "", "jquery_url": "", "mermaid_js_url": ""}
    exporter = HTMLExporter(template_name="lab", **nothing)  # type: ignore[no-untyped-call]
    text, _ = exporter.from_notebook_node(record.node)
    return str(text)
