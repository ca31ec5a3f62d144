"""`scorer console`: what the bus and the registry tell, in a browser. Pure folds and views; threads and sockets at the rim."""
