"""Keys of owners, and what they spend."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("expires", sa.String(), nullable=True),
        sa.Column("revoked", sa.String(), nullable=True),
        sa.Column("used", sa.String(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("secret", name=op.f("uq_keys_secret")),
    )
    op.create_index(op.f("ix_keys_owner"), "keys", ["owner"])
    op.create_table(
        "key_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["keys.id"], name=op.f("fk_key_requests_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_key_requests")),
    )
    op.create_index("ix_key_requests_key_at", "key_requests", ["key", "at"])
    op.create_table(
        "key_days",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["keys.id"], name=op.f("fk_key_days_key")),
        sa.PrimaryKeyConstraint("key", "day", name=op.f("pk_key_days")),
    )


def downgrade() -> None:
    op.drop_table("key_days")
    op.drop_table("key_requests")
    op.drop_table("keys")
