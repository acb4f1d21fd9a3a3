"""Datasets: digits as the built-in default, MNIST, Fashion-MNIST and CIFAR-10 from files of yours."""

from expunge.datasets.cifar import load_cifar10
from expunge.datasets.digits import Digits, load_digits
from expunge.datasets.idx import read_idx
from expunge.datasets.images import Images, MissingDataError, data_folder, load_fashion_mnist, load_mnist

__all__ = [
    "Digits",
    "Images",
    "MissingDataError",
    "data_folder",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "read_idx",
]
