"""Training runs, read from the attestations of versions: documents, plots, and the thread that reads them."""
