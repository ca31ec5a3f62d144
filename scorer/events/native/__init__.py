"""The part in C: what is done once an event, where Python would be slow. It knows no policy. Everything works without it."""
