"""What must hold in a deployment for the theorems to apply, in plain sentences."""

from __future__ import annotations

from typing import Final

#: Needed by every theorem.
BASE_ASSUMPTIONS: Final = (
    "Everything that leaves the system and depends on the secret randomness is counted in the transcript.",
    "Every retraining uses fresh randomness, and a full retraining redraws all of it.",
    "The unlearning algorithm is exact against requests chosen in advance (Lemma 4.1).",
)

#: Needed by the theorems that look at shards one by one.
PRODUCT_ASSUMPTIONS: Final = (
    "The shards are drawn and trained with independent randomness (a disjoint partition is not covered).",
    *BASE_ASSUMPTIONS,
)


def generations_assumption(num_generations: int) -> str:
    """The sentence that a guarantee with γ > 0 adds."""
    noun = "generation (full training) is" if num_generations == 1 else "generations (full trainings) are"
    return (
        f"At most {num_generations} {noun} updated without retraining everything, and gamma is paid for each; "
        "after them every update is a full retraining."
    )
