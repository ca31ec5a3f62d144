"""Score records: their schema, and the encoding of model outputs in the configured format."""
