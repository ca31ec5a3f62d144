"""Trust in versions: keys, signatures, attestations and the scorers' policy."""
