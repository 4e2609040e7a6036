"""The client's public face: the verbs, their arguments, transactions, watches, streams and administration."""
