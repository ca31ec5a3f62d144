"""The model_registry command."""


def main() -> None:
    raise SystemExit(2)
