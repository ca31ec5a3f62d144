"""Modules of the product import each other in one direction, imports under TYPE_CHECKING and inside functions included."""

from pathlib import Path

import grimp
import pytest

PACKAGES = ("scorer", "publisher", "model_registry", "training")
KNOWN = {
    "scorer.observability.traces": {"scorer.observability.otlp"},
    "training.recipes": {"training.recipes.network", "training.recipes.trees"},
}
"""Imports that close a cycle, by importer. An entry is removed with its cycle; none is added."""


def import_cycles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Return the modules of each cycle: the strongly connected components of the graph, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    cycles: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for imported in graph.find_modules_directly_imported_by(module):
            if imported not in order:
                visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in path:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            component = path[path.index(module) :]
            del path[path.index(module) :]
            if len(component) > 1:
                cycles.append(sorted(component))

    for module in sorted(graph.modules):
        if module not in order:
            visit(module)
    return cycles


def test_the_product_has_no_import_cycles() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    edges = [(importer, imported) for importer, several in KNOWN.items() for imported in several]
    broken = [
        edge
        for edge in edges
        if not graph.modules.issuperset(edge)
        or not graph.direct_import_exists(importer=edge[0], imported=edge[1])
        or not graph.chain_exists(importer=edge[1], imported=edge[0])
    ]
    assert broken == [], "these imports close no cycle any longer: remove them from KNOWN"
    for importer, imported in edges:
        graph.remove_import(importer=importer, imported=imported)
    assert import_cycles(graph) == []


@pytest.mark.parametrize(
    "text",
    [
        "import cycle.first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cycle.first",
        "def run():\n    from cycle import first",
    ],
)
def test_a_cycle_is_reported_wherever_the_import_is_written(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cycle"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("import cycle.second")
    (package / "second.py").write_text(text)
    (package / "third.py").write_text("import cycle.first")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert import_cycles(grimp.build_graph("cycle", cache_dir=None)) == [["cycle.first", "cycle.second"]]
