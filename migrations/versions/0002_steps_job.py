"""Steps name the job they did, so that an equal job is done once in a store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("job", sa.String(), nullable=True))
    op.create_index(op.f("ix_steps_job"), "steps", ["job"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_steps_job"), table_name="steps")
    op.drop_column("steps", "job")
