"""The part in C: what is done once an event, where Python would be slow. It knows no policy. Everything works without it.

scanner.c reads JSON, fetch.c takes events from Kafka as columns, produce.c puts records together and produces them. clients.c
gives them the Kafka clients. hash.c hashes keys.
"""
