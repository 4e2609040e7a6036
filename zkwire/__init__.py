"""An asyncio client of Apache ZooKeeper, written over the raw wire protocol with nothing but the standard library.

    async with zkwire.connect("zk1:2181,zk2:2181/app", session_timeout=10.0) as zk:
        await zk.create("/greeting", b"hello")

Distributed locks and their relatives are in the package `recipes`.
"""

from zkwire.administration import ClientInfo
from zkwire.arguments import digest_acl
from zkwire.client import Client
from zkwire.configuration import Configuration
from zkwire.connecting import Connecting, connect
from zkwire.errors import (
    AuthenticationRequiredError,
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    ConnectionLostError,
    DataInconsistencyError,
    EphemeralOnLocalSessionError,
    InvalidACLError,
    MarshallingError,
    NewConfigNoQuorumError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyError,
    NoWatcherError,
    OperationTimeoutError,
    ProtocolError,
    QuotaExceededError,
    ReconfigDisabledError,
    ReconfigInProgressError,
    RequestTimeoutError,
    RuntimeInconsistencyError,
    ServerError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
    SessionMovedError,
    SystemServerError,
    ThrottledError,
    TransactionError,
    UnimplementedError,
    ZooKeeperError,
)
from zkwire.events import EventStream, Resync
from zkwire.followers import ChildrenStream, DataStream, Following
from zkwire.janitor import Removal
from zkwire.observer import Observer
from zkwire.operations import Create, GetChildren, GetData, Node, Sync
from zkwire.paths import ancestors, sequence, sequence_distance
from zkwire.paths import validate as validate_path
from zkwire.records import ACL, CREATOR_ALL_ACL, OPEN_ACL, READ_ONLY_ACL, Perms, Stat
from zkwire.sasl import DigestMD5, SaslMechanism
from zkwire.states import SessionState
from zkwire.streams import StateStream, Watch, WatchEvent, WatchSet
from zkwire.transaction import Transaction
from zkwire.watches import WatchEventType
from zkwire.words import four_letter_word

__version__ = "0.1.0"

__all__ = [
    "ACL",
    "CREATOR_ALL_ACL",
    "OPEN_ACL",
    "READ_ONLY_ACL",
    "AuthFailedError",
    "AuthenticationRequiredError",
    "BadArgumentsError",
    "BadVersionError",
    "ChildrenStream",
    "Client",
    "ClientInfo",
    "Configuration",
    "Connecting",
    "ConnectionLostError",
    "Create",
    "DataInconsistencyError",
    "DataStream",
    "DigestMD5",
    "EphemeralOnLocalSessionError",
    "EventStream",
    "Following",
    "GetChildren",
    "GetData",
    "InvalidACLError",
    "MarshallingError",
    "NewConfigNoQuorumError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NoWatcherError",
    "Node",
    "NodeExistsError",
    "NotEmptyError",
    "NotReadOnlyError",
    "Observer",
    "OperationTimeoutError",
    "Perms",
    "ProtocolError",
    "QuotaExceededError",
    "ReconfigDisabledError",
    "ReconfigInProgressError",
    "Removal",
    "RequestTimeoutError",
    "Resync",
    "RuntimeInconsistencyError",
    "SaslMechanism",
    "ServerError",
    "SessionClosedError",
    "SessionError",
    "SessionExpiredError",
    "SessionMovedError",
    "SessionState",
    "Stat",
    "StateStream",
    "Sync",
    "SystemServerError",
    "ThrottledError",
    "Transaction",
    "TransactionError",
    "UnimplementedError",
    "Watch",
    "WatchEvent",
    "WatchEventType",
    "WatchSet",
    "ZooKeeperError",
    "ancestors",
    "connect",
    "digest_acl",
    "four_letter_word",
    "sequence",
    "sequence_distance",
    "validate_path",
]
