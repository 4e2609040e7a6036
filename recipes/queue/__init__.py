"""A queue of items, by priority and then first in, first out."""
