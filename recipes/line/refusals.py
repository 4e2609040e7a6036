"""Names of `recipes.common.retrying`, until all callers use that module."""

from recipes.common.retrying import any_transient, is_transient, pause

__all__ = ["any_transient", "is_transient", "pause"]
