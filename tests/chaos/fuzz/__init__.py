"""Records that no well-behaved client writes, and a scorer that must answer each of them."""
