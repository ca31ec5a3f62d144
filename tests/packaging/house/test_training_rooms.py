"""The rooms of deploy/training, top to bottom. import-linter holds those of the packages at the top of the wheel."""

import grimp

LAYERS = (
    {"cli"},
    {"commands"},
    {"demo"},
    {"pipeline"},
    {"export", "publish", "search"},
    {"validation_gate"},
    {"recipes"},
    {"runs_topic"},
    {"demo_dataset", "snapshot"},
    {"environment", "settings"},
)


def test_each_room_knows_those_below_it_alone() -> None:
    graph = grimp.build_graph("training")
    rooms = {module.removeprefix("training.") for module in graph.find_children("training")}
    assert rooms == set().union(*LAYERS), "a new room has its place above"
    violations = graph.find_illegal_dependencies_for_layers(layers=LAYERS, containers={"training"})
    assert {(violation.importer, violation.imported) for violation in violations} == set()
