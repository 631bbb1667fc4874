"""What the reference participants are run with: a database, a server, a journal of their calls, and planted faults."""
