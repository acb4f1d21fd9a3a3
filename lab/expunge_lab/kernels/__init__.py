"""The paper's network in a few kernels: forward, backward, norms and clipped sums, for many models, on a GPU.

Compiled layer by layer the network is bound by memory: its intermediate values are large and its matrices narrow. Here
one program of a Pallas (Triton) kernel takes `GROUP` examples of one model through the forward pass, another through
the gradients of activations, and so on; only the sums of clipped gradients come out. Operands of products are bfloat16,
sums float32.
"""

from expunge_lab.kernels.launch import clipped_sums, forward_operands, owners_scores, scores
from expunge_lab.kernels.layout import GROUP, Shape, Weights, native, standard
from expunge_lab.kernels.pictures import Pictures, patch_table
from expunge_lab.kernels.scratch import example_bytes
from expunge_lab.kernels.tuning import Tuning, Tunings
from expunge_lab.kernels.verification import differences, noisy_pictures

__all__ = [
    "GROUP",
    "Pictures",
    "Shape",
    "Tuning",
    "Tunings",
    "Weights",
    "clipped_sums",
    "differences",
    "example_bytes",
    "forward_operands",
    "native",
    "noisy_pictures",
    "owners_scores",
    "patch_table",
    "scores",
    "standard",
]
