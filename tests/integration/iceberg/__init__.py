"""The feature log in an Apache Iceberg table: Iceberg's sink connector on Kafka Connect, and a reader of the table."""
