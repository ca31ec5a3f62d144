"""Runs the `model-registry` command as `python -m model_registry`."""

from model_registry.cli import main

if __name__ == "__main__":
    main()
