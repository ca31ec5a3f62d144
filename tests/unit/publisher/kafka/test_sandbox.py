from pathlib import Path

from publisher.kafka import sandbox


def written(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_memory_is_what_the_control_group_has_left_beside_its_cache(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        proc__meminfo="MemTotal: 9000 kB\nMemAvailable: 8000 kB\n",
        sys__fs__cgroup__memory_dot_max="5000000\n",
        sys__fs__cgroup__memory_dot_current="4000000\n",
        sys__fs__cgroup__memory_dot_stat="anon 1\ninactive_file 500000\n",
    )
    assert sandbox.available(root) == 1_500_000


def test_memory_is_what_the_machine_has_where_no_group_limits_it(tmp_path: Path) -> None:
    root = written(tmp_path, proc__meminfo="MemAvailable: 8000 kB\n", sys__fs__cgroup__memory_dot_max="max\n")
    assert sandbox.available(root) == 8_192_000
