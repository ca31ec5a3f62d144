"""Train a model version from labelled events and promote it: freeze, join, search, train, export, evaluate, attest, sign."""
