"""A bug that is not yet covered: its notebook, its judge with a test, and its entry in the catalog, ready to be filled.

The notebook runs as it stands and says INCONCLUSIVE, since its trigger does nothing; what is to be written is marked.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import nbformat
import tomlkit
from jinja2 import Environment, PackageLoader, StrictUndefined
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from reproducers.bugs.finding import judged
from reproducers.catalog import load
from reproducers.errors import UsageError
from reproducers.states import Control

__all__ = ["add_bug"]

_ID = re.compile(r"\d{1,7}|[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_WELL = Control(True, "awake, healthy, 16 tokens twice the same; GET /load counts requests")
"""What the control says on every engine that is well: the output of the verdict cell names it."""
_TAGS = {
    "parameters": ["parameters"],
    "verdict": ["keep_output", "nbval-check-output"],
    "assertion": ["raises-exception"],
}


def add_bug(name: str, title: str, link: str, root: Path) -> list[Path]:
    """Write the parts of a new bug and return their paths; nothing is written where anything is wrong.

    Args:
        name: the issue's number, or a name of small letters, digits and hyphens.
        title: what goes wrong, in one line.
        link: where it is reported; empty for vLLM's issue of that number.
        root: of the kit's checkout.

    Raises:
        UsageError: the name or the title will not do, the bug is there already, or the checkout is none.
    """
    name, title = name.removeprefix("#"), " ".join(title.split())
    slug = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
    slug = slug if len(slug) <= 40 else slug[:41].rpartition("-")[0]
    _check(name, title, slug, root)
    module = (slug if name.isdigit() else name).replace("-", "_")
    if not module[0].isalpha():
        module = f"bug_{module}"
    notebook = f"{name}-{slug}.ipynb" if name.isdigit() else f"{name}.ipynb"
    paths = {
        "notebook": root / "notebooks" / notebook,
        "judge": root / "reproducers" / "bugs" / f"{module}.py",
        "test": root / "tests" / f"test_{module}.py",
    }
    for path in paths.values():
        if path.exists():
            raise UsageError(f"{path.relative_to(root)} exists already: choose another title")
    link = link or (f"https://github.com/vllm-project/vllm/issues/{name}" if name.isdigit() else "")
    words = {"name": name, "title": title, "module": module, "link": link}
    catalog_file = root / "reproducers" / "catalog.toml"
    entry = _entry(name, title, link, notebook)
    templates = Environment(
        loader=PackageLoader("reproducers", "scaffolds"),
        autoescape=False,  # noqa: S701  it makes Python
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    texts = {part: templates.get_template(f"{part}.py.j2").render(words) for part in ("judge", "test")}
    for part, text in texts.items():
        paths[part].write_text(text, encoding="utf-8")
    nbformat.write(_notebook(words, templates), paths["notebook"])
    catalog_file.write_text(catalog_file.read_text(encoding="utf-8") + entry, encoding="utf-8")
    return [*paths.values(), catalog_file]


def _check(name: str, title: str, slug: str, root: Path) -> None:
    if not _ID.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a bug: give the issue's number, or small letters with hyphens")
    if not slug:
        raise UsageError("a title says in words what goes wrong: give one with --title")
    if len(title) > 100:
        raise UsageError(f"the title has {len(title)} characters: say it in 100")
    if not (root / "pyproject.toml").is_file():
        raise UsageError(f"{root} is no checkout of the kit: a bug is added to its sources")
    known = load(root / "reproducers" / "catalog.toml", root / "notebooks")
    if name in known:
        raise UsageError(f"the bug {name} is there already: {known[name].notebook}")


def _entry(name: str, title: str, link: str, notebook: str) -> str:
    """The bug's table for the catalog, with what is expected of it as it stands."""
    bug = tomlkit.table()
    bug.update({"title": title, "links": [link] if link else [], "part": "state transitions", "notebook": notebook})
    if not link:  # what nobody has reported needs a text that can be
        bug.add("report", f"{title}. To be written: what was called, what came of it, and what was expected.")
    expected = tomlkit.table()
    expected.update({"verdict": "INCONCLUSIVE", "source": "the trigger is not written"})
    several = tomlkit.aot()
    several.append(expected)
    bug.add("expect", several)
    whole = tomlkit.document()
    whole.add(name, bug)
    return "\n" + tomlkit.dumps(whole)


def _notebook(words: Mapping[str, str], templates: Environment) -> NotebookNode:
    """The notebook, with the verdict that its judge gives of nothing as its one output."""
    node: NotebookNode = new_notebook()
    for part in templates.get_template("notebook.txt.j2").render(words).split("\n--- ")[1:]:
        head, _, source = part.partition("\n")
        kind, cell_id = head.split()
        text = source.strip("\n")
        cell = new_markdown_cell(text) if kind == "markdown" else new_code_cell(text)
        cell["id"] = cell_id
        if cell_id in _TAGS:
            cell.metadata["tags"] = _TAGS[cell_id]
        if cell_id == "verdict":
            data = judged(words["name"], _WELL, [], None)._repr_mimebundle_()
            cell.outputs = [new_output("execute_result", data=data, execution_count=5)]
            cell.execution_count = 5
        node.cells.append(cell)
    node.metadata["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    node.metadata["language_info"] = {"name": "python"}
    return node
