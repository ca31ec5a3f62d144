"""The canary campaign: whose key each event is, counted twice, while scorers are killed and the channel moves."""
