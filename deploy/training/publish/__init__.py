"""What a run leaves in the registry and on the bus, each thing once: a version, what is attested of it, a signature, a move.

Every function may be called again after a kill at any point, and by two processes of one run at the same time. `at` is the
moment of the run's freeze, so that both write the same bytes.
"""
