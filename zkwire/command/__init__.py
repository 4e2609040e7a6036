"""The command `zkwire`, also `python -m zkwire`: nodes, watches, ACLs and servers from a shell."""
