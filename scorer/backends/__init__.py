"""Where a model runs, behind one small protocol."""
