"""The relay: from the queue in Postgres to the topics, in order per job, marked only after the acknowledgement."""
