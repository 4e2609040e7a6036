"""An asyncio client of Apache ZooKeeper, which speaks the wire protocol itself and needs only the standard library.

    async with zkwire.connect("zk1:2181,zk2:2181/app", session_timeout=10.0) as zk:
        await zk.create("/greeting", b"hello")

Distributed locks, elections, queues and the like are in the package `recipes`.
"""

from zkwire import errors
from zkwire.client.admin import ClientInfo, Configuration, digest_acl
from zkwire.client.client import Client
from zkwire.client.connect import connect
from zkwire.client.event_stream import EventStream, Resync
from zkwire.client.four_letter_words import four_letter_word
from zkwire.client.node_streams import ChildrenStream, DataStream, ValueStream
from zkwire.client.operations import Create, GetChildren, GetChildrenAndStat, GetData, Node, Sync
from zkwire.client.streams import StateStream
from zkwire.client.transaction import Transaction
from zkwire.client.watch import Watch, WatchEvent, WatchSet
from zkwire.errors import *  # noqa: F403  # the names in its `__all__`
from zkwire.paths import ancestors, sequence, sequence_distance
from zkwire.paths import join as join_path
from zkwire.paths import validate as validate_path
from zkwire.session.guaranteed_delete import GuaranteedDelete
from zkwire.session.observer import Observer, SessionState
from zkwire.session.sasl import DigestMD5, SaslMechanism
from zkwire.wire.records import ACL, CREATOR_ALL_ACL, OPEN_ACL, READ_ONLY_ACL, Perms, Stat
from zkwire.wire.watch_table import WatchEventType

__version__ = "1.0.0rc1"

__all__ = [
    "ACL",
    "CREATOR_ALL_ACL",
    "OPEN_ACL",
    "READ_ONLY_ACL",
    "ChildrenStream",
    "Client",
    "ClientInfo",
    "Configuration",
    "Create",
    "DataStream",
    "DigestMD5",
    "EventStream",
    "GetChildren",
    "GetChildrenAndStat",
    "GetData",
    "GuaranteedDelete",
    "Node",
    "Observer",
    "Perms",
    "Resync",
    "SaslMechanism",
    "SessionState",
    "Stat",
    "StateStream",
    "Sync",
    "Transaction",
    "ValueStream",
    "Watch",
    "WatchEvent",
    "WatchEventType",
    "WatchSet",
    "ancestors",
    "connect",
    "digest_acl",
    "four_letter_word",
    "join_path",
    "sequence",
    "sequence_distance",
    "validate_path",
]
__all__ += errors.__all__
