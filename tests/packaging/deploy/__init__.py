"""Everything in deploy/kubernetes, held against schemas, against the product's own settings and metrics, and against itself."""
