"""Table files for people and notebooks: Parquet, CSV and JSON lines. Independent of Kafka and of models."""
