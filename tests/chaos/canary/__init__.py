"""The canary campaign: which version answers each key, counted twice, while scorers are killed and the channel moves."""
