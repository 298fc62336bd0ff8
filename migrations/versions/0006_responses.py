"""Responses by their ids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("turn", sa.String(), nullable=True),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_responses")),
    )
    op.create_index(op.f("ix_responses_owner"), "responses", ["owner"])
    op.create_index(op.f("ix_responses_turn"), "responses", ["turn"])


def downgrade() -> None:
    op.drop_table("responses")
