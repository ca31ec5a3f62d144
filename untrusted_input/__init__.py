"""Readers of bytes that others wrote: documents, text for terminals, files.

Records, commit metadata, registry documents, answers of servers and files of people may hold anything. This is the lowest
package: publisher, model registry and scorer depend on it, and the first two must not depend on each other.
"""
