"""From labelled events to a promoted version: freeze, join, search, train, export, judge, attest, sign, promote."""
