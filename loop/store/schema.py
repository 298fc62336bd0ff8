"""Every table of the store, whichever module it stands in: ``METADATA`` here knows them all."""

from __future__ import annotations

from loop.store import access_tables, conversation_tables, import_tables, living_tables, response_tables
from loop.store.tables import METADATA

__all__ = ["METADATA", "access_tables", "conversation_tables", "import_tables", "living_tables", "response_tables"]
