"""Who vouches for a version: keys, signatures and attestations beside it in the store, and the policy of those who load it."""
