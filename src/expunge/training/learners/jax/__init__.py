"""Networks trained with JAX, many shards at once; needs the extra: pip install 'expunge[jax]'."""

from importlib import import_module

from expunge.core.errors import MissingExtraError

for _name in ("jax", "optax"):
    try:
        import_module(_name)
    except ImportError as error:
        message = f"the JAX learner needs {_name}, which is not installed: pip install 'expunge[jax]'"
        raise MissingExtraError(message) from error

from expunge.training.learners.jax.layers import Activation, Conv, Dense, Flatten, MaxPool  # noqa: E402
from expunge.training.learners.jax.learner import JaxLearner, SlicedJaxLearner, same_parameters  # noqa: E402
from expunge.training.learners.jax.model import JaxModel  # noqa: E402
from expunge.training.learners.jax.networks import (  # noqa: E402
    Architecture,
    Equinox,
    Flax,
    FlaxNNX,
    Functions,
    Network,
    logistic,
    mlp,
    paper_network,
)
from expunge.training.learners.jax.options import Optimizer, PrivateSGD, Validation, adam, sgd  # noqa: E402
from expunge.training.learners.jax.program import use_compilation_cache  # noqa: E402

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
