"""Imported adapters: where they came from, and whether they may serve."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "imported_adapters",
        sa.Column("adapter", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("adapter", name=op.f("pk_imported_adapters")),
    )
    op.create_index(op.f("ix_imported_adapters_blob"), "imported_adapters", ["blob"])


def downgrade() -> None:
    op.drop_table("imported_adapters")
