"""What a folder was made from, for who studies it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.durable import contents
from expunge.errors import FormatError
from expunge.learners import ScikitLearner
from expunge.publishing import DirectFront

X = np.arange(40.0).reshape(20, 2)


@pytest.mark.parametrize("is_served", [False, True])
def test_the_contents_are_those_of_the_deployment(tmp_path: Path, is_served: bool) -> None:
    folder = tmp_path / "clinic"
    served = expunge.create(folder, GaussianNB(), X, np.arange(20) % 2, n_shards=3, mechanism="exponential")
    served.delete([4, 5])
    if not is_served:
        served.close()
    with contents(folder) as found:
        assert found.name == "clinic"
        assert found.records.ids() == [record for record in range(20) if record not in (4, 5)]
        assert np.array_equal(found.records.gather(found.records.live_slots())[0], np.delete(X, [4, 5], axis=0))
        assert isinstance(found.learner, ScikitLearner)
        assert isinstance(found.learner.estimator, GaussianNB)
        assert (found.settings.n_shards, type(found.settings.mechanism).__name__) == (3, "ExponentialMechanism")
        assert isinstance(found.front, DirectFront)
    served.close()


def test_what_is_no_deployment_has_no_contents(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"), contents(tmp_path / "nothing"):
        pass
