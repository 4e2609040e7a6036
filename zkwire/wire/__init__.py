"""The protocol as pure functions and machines: bytes and times in, bytes and events out.

Nothing here imports asyncio, socket, ssl or time.
"""
