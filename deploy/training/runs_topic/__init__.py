"""The topic of runs: the events of a run, written while it happens, and read back as the history of all runs."""
