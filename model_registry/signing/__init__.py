"""Trust in versions: keys, signatures and attestations beside a version in the store, and the policy of the scorers."""
