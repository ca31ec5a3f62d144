"""The web console: feeds read Kafka and the registry into pure folds, and pure views turn the folds into pages."""
