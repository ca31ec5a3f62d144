"""Owns writing to Kafka: the transaction session, the audit, and the relay between regions."""
