"""From labelled events to a promoted version: freeze, join, search, train, export, evaluate, attest, sign, promote."""
