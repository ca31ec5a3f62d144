"""Pictures of a run as SVG: text made of the documents that a run leaves behind. Pure; no scripts."""
