"""The contestants as programs; see bench/peers/lines.py."""
