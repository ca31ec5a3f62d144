"""How long scores pause while scorers are restarted, stopped and scaled, and whether scorers survive a broker outage."""
