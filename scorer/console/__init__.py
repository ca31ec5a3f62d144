"""The web console.

Feeds read Kafka and the registry into the console's state, which consists of folds: summaries that each new record updates.
Pure views build the pages from the state.
"""
