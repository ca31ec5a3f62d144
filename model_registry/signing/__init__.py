"""Establishes trust in versions: keys, signatures, attestations, and the policy that decides which versions a scorer loads."""
