"""A double barrier: its members begin together and end together."""
