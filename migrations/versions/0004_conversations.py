"""Conversations: delivered turns, and the summaries that were written after them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exchanges",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("opening", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("history", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["parent"], ["exchanges.id"], name=op.f("fk_exchanges_parent")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exchanges")),
    )
    op.create_index(op.f("ix_exchanges_opening"), "exchanges", ["opening"])
    op.create_index("ix_exchanges_owner_history", "exchanges", ["owner", "history"])
    op.create_table(
        "exchange_summaries",
        sa.Column("exchange", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["exchange"], ["exchanges.id"], name=op.f("fk_exchange_summaries_exchange")),
        sa.PrimaryKeyConstraint("exchange", name=op.f("pk_exchange_summaries")),
    )


def downgrade() -> None:
    op.drop_table("exchange_summaries")
    op.drop_table("exchanges")
