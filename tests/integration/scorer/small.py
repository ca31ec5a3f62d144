"""`scorer` whose workers may take no more than 512 MiB beside what they begin with, as in a small container."""

import os
import resource

from model_registry.memory_limits import data_bytes
from scorer import cli

ROOM = 512 << 20


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + ROOM, resource.RLIM_INFINITY))


if __name__ == "__main__":
    os.register_at_fork(after_in_child=limit)
    cli.main()
