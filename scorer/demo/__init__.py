"""The one-command demo: a real broker, real flights, a live swap and a kill."""
