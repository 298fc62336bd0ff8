"""Alembic's environment: migrates the connection it is given, or the database of MACARON_DATABASE_URL."""

from __future__ import annotations

import os
from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from loop.store.migrate import locked
from loop.store.schema import METADATA

DEFAULT_URL = "sqlite:///.macaron/loop.db"


def render(kind: str, item: Any, autogenerate: Any) -> str | Literal[False]:
    """Write plain SQLAlchemy types: a migration must not change when the code's types do."""
    if kind != "type":
        return False
    return {"NounColumn": "sa.JSON()", "AutoString": "sa.String()"}.get(type(item).__name__, False)


def migrate(connection: Connection) -> None:
    """Run the migrations in one transaction (SQLite too: its DDL is transactional)."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        transactional_ddl=True,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        render_item=render,
    )
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """Use the caller's connection (loop.store.migrate), else open one (the alembic command)."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        migrate(connection)
        return
    with locked(os.environ.get("MACARON_DATABASE_URL", DEFAULT_URL)) as connection:
        migrate(connection)


main()
