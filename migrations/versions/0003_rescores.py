"""Scores of stored episodes under another contract version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rescores",
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("contract", sa.String(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("noun", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["contract"], ["contracts.digest"], name=op.f("fk_rescores_contract")),
        sa.ForeignKeyConstraint(["generation"], ["generations.digest"], name=op.f("fk_rescores_generation")),
        sa.ForeignKeyConstraint(["noun"], ["nouns.digest"], name=op.f("fk_rescores_noun")),
        sa.PrimaryKeyConstraint("generation", "contract", "judge", "key", name=op.f("pk_rescores")),
    )


def downgrade() -> None:
    op.drop_table("rescores")
