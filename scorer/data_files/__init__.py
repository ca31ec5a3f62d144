"""Files of tables for people and notebooks: Parquet, CSV and JSON lines. Knows neither Kafka nor models."""
