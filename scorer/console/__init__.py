"""The web console: feeds read Kafka and the registry into a state of folds, from which pure views build the pages."""
