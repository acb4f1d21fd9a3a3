"""PrivatePredict: how the shards' votes become one released label."""
