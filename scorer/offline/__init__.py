"""Score the rows of a local file with one version, without Kafka: the same decoder and the same model as in a scorer."""
