"""Fallbacks: deterministic models that unlearn exactly. They route queries and answer the hard ones."""

from expunge.training.fallback.naive_bayes import (
    GaussianNaiveBayes,
    GaussianNaiveBayesModel,
    MultinomialNaiveBayes,
    MultinomialNaiveBayesModel,
)
from expunge.training.fallback.neighbours import NearestNeighbours, NearestNeighboursModel
from expunge.training.fallback.protocol import NO_ANSWER, Assessment, Fallback, FallbackModel
from expunge.training.fallback.ridge import RidgeFallback, RidgeModel

__all__ = [
    "NO_ANSWER",
    "Assessment",
    "Fallback",
    "FallbackModel",
    "GaussianNaiveBayes",
    "GaussianNaiveBayesModel",
    "MultinomialNaiveBayes",
    "MultinomialNaiveBayesModel",
    "NearestNeighbours",
    "NearestNeighboursModel",
    "RidgeFallback",
    "RidgeModel",
]
