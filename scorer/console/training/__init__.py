"""Runs of training as a version's attestations tell them: documents, their pictures, and the reading of them."""
