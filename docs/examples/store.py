"""The store of orders.py and shop.py: it places each order once, and refuses a process that has lost its lock.

SQLite stands for a database that all hosts share.  Both statements are PostgreSQL's, too, but for the question marks.
"""

import contextlib
import os
import sqlite3

DATABASE = os.environ.get("DATABASE", "orders.db")


class StaleTokenError(Exception):
    """A process that has acquired the lock of this account later has placed an order since."""


def place(order: str, account: int, token: int) -> bool:
    """Place an order of an account, with the fencing token of the account's lock.

    Args:
        order: The order's own id, by which a repeated request is recognised.
        account: The account that is locked.
        token: The token of the lease.

    Returns:
        True if it was placed now, False if it had been placed before.

    Raises:
        StaleTokenError: nothing was placed: another process has the lock by now.
    """
    with contextlib.closing(sqlite3.connect(DATABASE)) as store:
        store.execute("CREATE TABLE IF NOT EXISTS fence (account INTEGER PRIMARY KEY, token BIGINT NOT NULL)")
        store.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, account INTEGER NOT NULL)")
        with store:  # one transaction: the token and the order, or neither
            newest = store.execute(
                "INSERT INTO fence VALUES (?, ?) ON CONFLICT (account)"
                " DO UPDATE SET token = excluded.token WHERE excluded.token >= fence.token",
                (account, token),
            )
            if newest.rowcount == 0:
                raise StaleTokenError(f"account {account}: a token greater than {token} has been used")
            placed = store.execute("INSERT INTO orders VALUES (?, ?) ON CONFLICT DO NOTHING", (order, account))
            return placed.rowcount == 1
