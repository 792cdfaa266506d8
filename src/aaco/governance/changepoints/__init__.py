"""A history over time: where its level changed, whether it drifts, what an online watch would have hinted at."""
