"""Serving: publishing, the deployment in memory, and the scikit-learn estimator."""
