"""Everything that talks to Kafka: clients, the transaction session, the relay between regions, failover, and the audits."""
