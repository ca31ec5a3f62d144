"""The publisher command."""


def main() -> None:
    raise SystemExit(2)
