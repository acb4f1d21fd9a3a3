"""Training: sampling of shards, learners, and the pure functions `learn` and `update`."""
