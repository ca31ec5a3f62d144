from model_registry.cli import main

main()
