"""The lineage in SQL and the content-addressed blobs beside it; SQL lives nowhere else."""
