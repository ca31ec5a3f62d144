"""Publication of a run, each part once: a version, its attestations, a signature, a channel move.

Every function can be repeated after a kill at any point, and by two processes of one run at the same time. `at` is the time of
the run's freeze, so that both write the same bytes.
"""
