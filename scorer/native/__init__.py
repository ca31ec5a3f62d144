"""A C library for the work per event that is slow in Python. The scorer also works without it."""

# scanner.c scans JSON, source_positions.c scans the source positions of score records, hash.c hashes keys, and key_index.c
# finds the rows of tables by their keys. fetch.c fetches events from Kafka as columns; produce.c assembles records and produces
# them. clients.c binds librdkafka and provides the handles of its clients. layout.c checks the layout of librdkafka's
# structures. The native part makes no policy decisions.
