"""The part in C: what is done once an event, where Python would be slow. It knows no policy. Everything works without it.

scanner.c reads JSON, take.c takes events from Kafka as columns, write.c puts records together and produces them; clients.c says
how they come by the clients. hash.c says whose a key is.
"""
