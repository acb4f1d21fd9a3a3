"""(α,β,γ)-unlearning guarantees with explicit constants, and run-time bounds."""
