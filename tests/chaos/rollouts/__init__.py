"""The rollouts campaign: whole rollouts under kill -9, a controller's death at each step, and the time of rollbacks."""
