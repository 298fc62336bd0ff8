"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "adapters",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("base", sa.String(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_adapters")),
    )
    op.create_table(
        "attempts",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("generation", sa.String(), nullable=True),
        sa.Column("started", sa.String(), nullable=False),
        sa.Column("finished", sa.String(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_attempts")),
    )
    op.create_index(op.f("ix_attempts_family"), "attempts", ["family"], unique=False)
    op.create_index("uq_attempts_identity", "attempts", ["parent", "plan", "trial"], unique=True)
    op.create_index(
        "uq_attempts_open",
        "attempts",
        ["parent"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "bases",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("weights_digest", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bases")),
    )
    op.create_index(op.f("ix_bases_weights_digest"), "bases", ["weights_digest"], unique=False)
    op.create_table(
        "contracts",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("folder_digest", sa.String(), nullable=True),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_contracts")),
    )
    op.create_table(
        "harnesses",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_harnesses")),
    )
    op.create_table(
        "leases",
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_started", sa.Float(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("heartbeat", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("family", name=op.f("pk_leases")),
    )
    op.create_table(
        "noise_floors",
        sa.Column("contract", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("base", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("cases", sa.Integer(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("contract", "engine", "base", name=op.f("pk_noise_floors")),
    )
    op.create_table(
        "nouns",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_nouns")),
    )
    op.create_table(
        "budgets",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempts.digest"], name=op.f("fk_budgets_attempt")),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", name=op.f("pk_budgets")),
    )
    op.create_table(
        "generations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("standing", sa.String(), nullable=False),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=True),
        sa.Column("base", sa.String(), nullable=False),
        sa.Column("harness", sa.String(), nullable=False),
        sa.Column("contract", sa.String(), nullable=True),
        sa.Column("attempt", sa.String(), nullable=True),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("gain", sa.Float(), nullable=True),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempts.digest"], name=op.f("fk_generations_attempt")),
        sa.ForeignKeyConstraint(["base"], ["bases.digest"], name=op.f("fk_generations_base")),
        sa.ForeignKeyConstraint(["contract"], ["contracts.digest"], name=op.f("fk_generations_contract")),
        sa.ForeignKeyConstraint(["harness"], ["harnesses.digest"], name=op.f("fk_generations_harness")),
        sa.ForeignKeyConstraint(["parent"], ["generations.digest"], name=op.f("fk_generations_parent")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generations")),
        sa.UniqueConstraint("digest", name=op.f("uq_generations_digest")),
    )
    op.create_index(op.f("ix_generations_family"), "generations", ["family"], unique=False)
    op.create_index(
        "uq_generations_promoted",
        "generations",
        ["family", "number"],
        unique=True,
        sqlite_where=sa.text("standing <> 'rejected'"),
        postgresql_where=sa.text("standing <> 'rejected'"),
    )
    op.create_table(
        "holdout_openings",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("last", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempts.digest"], name=op.f("fk_holdout_openings_attempt")),
        sa.PrimaryKeyConstraint("attempt", "generation", "why", name=op.f("pk_holdout_openings")),
    )
    op.create_index(op.f("ix_holdout_openings_family"), "holdout_openings", ["family"], unique=False)
    op.create_table(
        "steps",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("noun", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["attempt"], ["attempts.digest"], name=op.f("fk_steps_attempt")),
        sa.ForeignKeyConstraint(["noun"], ["nouns.digest"], name=op.f("fk_steps_noun")),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", name=op.f("pk_steps")),
    )
    op.create_table(
        "episodes",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("shard", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("pair", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("sample", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("boundary", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt", "stage", "key"],
            ["steps.attempt", "steps.stage", "steps.key"],
            name=op.f("fk_episodes_attempt_stage_key"),
        ),
        sa.PrimaryKeyConstraint("attempt", "digest", name=op.f("pk_episodes")),
    )
    op.create_index("ix_episodes_digest", "episodes", ["digest"], unique=False)
    op.create_table(
        "generation_adapters",
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("adapter", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["adapter"], ["adapters.digest"], name=op.f("fk_generation_adapters_adapter")),
        sa.ForeignKeyConstraint(["generation"], ["generations.digest"], name=op.f("fk_generation_adapters_generation")),
        sa.PrimaryKeyConstraint("generation", "label", name=op.f("pk_generation_adapters")),
    )
    op.create_table(
        "policies",
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["generation"], ["generations.digest"], name=op.f("fk_policies_generation")),
        sa.PrimaryKeyConstraint("family", "owner", "name", name=op.f("pk_policies")),
    )
    op.create_table(
        "policy_moves",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("generation", sa.String(), nullable=False),
        sa.Column("previous", sa.String(), nullable=True),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["generation"], ["generations.digest"], name=op.f("fk_policy_moves_generation")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_moves")),
    )
    op.create_index(op.f("ix_policy_moves_family"), "policy_moves", ["family"], unique=False)
    op.create_table(
        "scores",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("episode", sa.String(), nullable=False),
        sa.Column("contract", sa.String(), nullable=False),
        sa.Column("half", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt", "stage", "key"],
            ["steps.attempt", "steps.stage", "steps.key"],
            name=op.f("fk_scores_attempt_stage_key"),
        ),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", "episode", name=op.f("pk_scores")),
    )
    op.create_index("ix_scores_episode", "scores", ["episode"], unique=False)
    op.create_table(
        "training_sets",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("noun", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt", "stage", "key"],
            ["steps.attempt", "steps.stage", "steps.key"],
            name=op.f("fk_training_sets_attempt_stage_key"),
        ),
        sa.ForeignKeyConstraint(["noun"], ["nouns.digest"], name=op.f("fk_training_sets_noun")),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", name=op.f("pk_training_sets")),
    )
    op.create_table(
        "verdicts",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("episode", sa.String(), nullable=False),
        sa.Column("half", sa.String(), nullable=False),
        sa.Column("criterion", sa.String(), nullable=False),
        sa.Column("axiom", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("judge", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt", "stage", "key"],
            ["steps.attempt", "steps.stage", "steps.key"],
            name=op.f("fk_verdicts_attempt_stage_key"),
        ),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", "episode", "half", "criterion", name=op.f("pk_verdicts")),
    )
    op.create_index("ix_verdicts_episode", "verdicts", ["episode"], unique=False)
    op.create_table(
        "training_rows",
        sa.Column("attempt", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("episode", sa.String(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("licence", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt", "stage", "key"],
            ["training_sets.attempt", "training_sets.stage", "training_sets.key"],
            name=op.f("fk_training_rows_attempt_stage_key"),
        ),
        sa.PrimaryKeyConstraint("attempt", "stage", "key", "position", name=op.f("pk_training_rows")),
    )
    op.create_index("ix_training_rows_episode", "training_rows", ["episode"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_training_rows_episode", table_name="training_rows")
    op.drop_table("training_rows")
    op.drop_index("ix_verdicts_episode", table_name="verdicts")
    op.drop_table("verdicts")
    op.drop_table("training_sets")
    op.drop_index("ix_scores_episode", table_name="scores")
    op.drop_table("scores")
    op.drop_index(op.f("ix_policy_moves_family"), table_name="policy_moves")
    op.drop_table("policy_moves")
    op.drop_table("policies")
    op.drop_table("generation_adapters")
    op.drop_index("ix_episodes_digest", table_name="episodes")
    op.drop_table("episodes")
    op.drop_table("steps")
    op.drop_index(op.f("ix_holdout_openings_family"), table_name="holdout_openings")
    op.drop_table("holdout_openings")
    op.drop_index(
        "uq_generations_promoted",
        table_name="generations",
        sqlite_where=sa.text("standing <> 'rejected'"),
        postgresql_where=sa.text("standing <> 'rejected'"),
    )
    op.drop_index(op.f("ix_generations_family"), table_name="generations")
    op.drop_table("generations")
    op.drop_table("budgets")
    op.drop_table("nouns")
    op.drop_table("noise_floors")
    op.drop_table("leases")
    op.drop_table("harnesses")
    op.drop_table("contracts")
    op.drop_index(op.f("ix_bases_weights_digest"), table_name="bases")
    op.drop_table("bases")
    op.drop_index(
        "uq_attempts_open",
        table_name="attempts",
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.drop_index("uq_attempts_identity", table_name="attempts")
    op.drop_index(op.f("ix_attempts_family"), table_name="attempts")
    op.drop_table("attempts")
    op.drop_table("adapters")
