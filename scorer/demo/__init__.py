"""The demo in one command: a real broker, real flights, a version change while events flow, and a killed scorer."""
