"""Views of the lineage for people: MLflow, or none."""
