"""Networks trained with JAX, many shards at once; needs the extra: pip install 'expunge[jax]'."""

from expunge.training.learners.jax.extra import MissingExtraError, require_jax

require_jax()

from expunge.training.learners.jax.architecture import Architecture, Equinox, Flax, FlaxNNX, Functions  # noqa: E402
from expunge.training.learners.jax.extra import use_compilation_cache  # noqa: E402
from expunge.training.learners.jax.layers import Activation, Conv, Dense, Flatten, MaxPool  # noqa: E402
from expunge.training.learners.jax.learner import JaxLearner  # noqa: E402
from expunge.training.learners.jax.model import JaxModel  # noqa: E402
from expunge.training.learners.jax.networks import Network, logistic, mlp, paper_network  # noqa: E402
from expunge.training.learners.jax.options import (  # noqa: E402
    Optimizer,
    PrivateSGD,
    adam,
    sgd,
)
from expunge.training.learners.jax.recipe import Validation  # noqa: E402
from expunge.training.learners.jax.sliced import SlicedJaxLearner, same_parameters  # noqa: E402

__all__ = [
    "Activation",
    "Architecture",
    "Conv",
    "Dense",
    "Equinox",
    "Flatten",
    "Flax",
    "FlaxNNX",
    "Functions",
    "JaxLearner",
    "JaxModel",
    "MaxPool",
    "MissingExtraError",
    "Network",
    "Optimizer",
    "PrivateSGD",
    "SlicedJaxLearner",
    "Validation",
    "adam",
    "logistic",
    "mlp",
    "paper_network",
    "same_parameters",
    "sgd",
    "use_compilation_cache",
]
