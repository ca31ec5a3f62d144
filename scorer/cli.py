"""The scorer command."""


def main() -> None:
    raise SystemExit(2)
