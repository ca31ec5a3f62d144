"""Records that no well-behaved client writes, and a scorer that has to answer each of them."""
