"""Consent, what was exported under it, and what may not be learned from any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "consents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("terms", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consents")),
    )
    op.create_index(op.f("ix_consents_owner"), "consents", ["owner"])
    op.create_table(
        "opt_outs",
        sa.Column("opening", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("opening", name=op.f("pk_opt_outs")),
    )
    op.create_table(
        "exported",
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("opening", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("case", name=op.f("pk_exported")),
    )
    op.create_index(op.f("ix_exported_owner"), "exported", ["owner"])
    op.create_index(op.f("ix_exported_opening"), "exported", ["opening"])
    op.create_table(
        "export_files",
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_export_files")),
    )
    op.create_table(
        "forgotten",
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("case", name=op.f("pk_forgotten")),
    )
    op.create_table(
        "erasures",
        sa.Column("noun", sa.String(), nullable=False),
        sa.Column("replacement", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["noun"], ["nouns.digest"], name=op.f("fk_erasures_noun")),
        sa.ForeignKeyConstraint(["replacement"], ["nouns.digest"], name=op.f("fk_erasures_replacement")),
        sa.PrimaryKeyConstraint("noun", name=op.f("pk_erasures")),
    )


def downgrade() -> None:
    for table in ("erasures", "forgotten", "export_files", "exported", "opt_outs", "consents"):
        op.drop_table(table)
