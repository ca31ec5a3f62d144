"""The native part in C: work per event for which Python would be slow. It contains no policy, and everything works without it.

scanner.c scans JSON, fetch.c fetches events from Kafka as columns, produce.c assembles records and produces them. clients.c
provides
the Kafka clients. hash.c hashes keys.
"""
