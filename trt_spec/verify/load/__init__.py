"""The load client: many streamed requests to one endpoint, timed message by message."""
