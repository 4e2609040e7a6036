"""What a caller sees: the verbs, their arguments, transactions, watches, streams and administration."""
