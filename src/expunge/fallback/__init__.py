"""Fallbacks: deterministic models that unlearn exactly, for routing queries and for answering the hard ones."""

from expunge.fallback.gaussian import GaussianNaiveBayes, GaussianNaiveBayesModel
from expunge.fallback.multinomial import MultinomialNaiveBayes, MultinomialNaiveBayesModel
from expunge.fallback.neighbours import NearestNeighbours, NearestNeighboursModel
from expunge.fallback.protocol import NO_ANSWER, Assessment, Fallback, FallbackModel
from expunge.fallback.ridge import RidgeFallback, RidgeModel

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
