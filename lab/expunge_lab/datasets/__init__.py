"""Datasets: MNIST, Fashion-MNIST and CIFAR-10 from files of yours."""

from expunge.audit.images import Images, MissingDataError, data_folder, load_fashion_mnist, load_mnist, read_idx
from expunge_lab.datasets.cifar import load_cifar10

__all__ = [
    "Images",
    "MissingDataError",
    "data_folder",
    "load_cifar10",
    "load_fashion_mnist",
    "load_mnist",
    "read_idx",
]
