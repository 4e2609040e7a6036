"""A pause of reading that holds from the first byte of a connection on."""

import asyncio


def keep_paused(transport: asyncio.Transport) -> None:
    """Have a pause of reading hold that was asked for in `connection_made`.

    The event loop of Python 3.11.2 begins to read after that call, whether reading is paused or not.
    """
    asyncio.get_running_loop().call_soon(_pause_again, transport)


def _pause_again(transport: asyncio.Transport) -> None:
    if not transport.is_closing() and not transport.is_reading():
        transport.resume_reading()
        transport.pause_reading()
