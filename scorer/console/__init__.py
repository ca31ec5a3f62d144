"""The web console: feeds read Kafka and the registry into pure folds, and pure views make pages of them."""
