"""Pure statistics on scorecards: intervals, pass@k, the gate."""
