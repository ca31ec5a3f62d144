"""A class name exists once in the product, so that a reader who meets it knows which class is meant."""

import ast
from collections import defaultdict
from collections.abc import Iterable

from tests.packaging.house.test_tree import tracked
from tests.support.environment import ROOT

FOLDERS = ("scorer", "publisher", "model_registry", "deploy")


def class_names(sources: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the files that define a class of each name, of (file, its source)."""
    files: dict[str, set[str]] = defaultdict(set)
    for file, source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(file)
    return files


def test_class_names_are_unique_in_the_product() -> None:
    paths = [path for path in tracked() if path.parts[0] in FOLDERS and path.suffix == ".py"]
    names = class_names((str(path), (ROOT / path).read_text()) for path in paths)
    repeated = {name: sorted(files) for name, files in names.items() if len(files) > 1}
    assert repeated == {}


def test_repeated_names_of_nested_and_private_classes_are_reported() -> None:
    names = class_names(
        [("a.py", "class A:\n    class B: ..."), ("b.py", "def f():\n    class B: ..."), ("c.py", "class _B: ...")]
    )
    assert names == {"A": {"a.py"}, "B": {"a.py", "b.py"}, "_B": {"c.py"}}
