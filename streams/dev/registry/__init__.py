"""A stand-in for a schema registry: the calls of Confluent's API that clients make, kept in memory.

It is ours, written from what clients send and expect, for tests, the demo and a first try. It was never verified
against Confluent's server. What it leaves out: storage, security, contexts, metadata and rule sets (refused), modes
other than READWRITE, and the compatibility of JSON Schema (every change passes). A schema comes back as it was sent.
"""
