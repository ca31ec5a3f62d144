"""Score records: their schema, and the encoding of model outputs as records in the configured format."""
