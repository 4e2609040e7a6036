"""The protocol as pure functions and state machines: bytes and times go in, bytes and events come out.

Nothing here imports asyncio, socket, ssl or time.
"""
