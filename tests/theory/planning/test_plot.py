import sys
import xml.etree.ElementTree as ET

import pytest
from matplotlib import image

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting import BoundedRange, GaussianDP, NonPrivate
from expunge.theory import certify
from expunge.theory.planning import plan, plot_plan
from expunge.theory.planning.plot import Bounds, plot_bounds

TARGET = Guarantee(1, 1e-3, 1e-3)


def bounds(**options):
    return Bounds(
        **{
            "event": BoundedRange(0.001),
            "num_shards": 1000,
            "target": TARGET,
            "num_generations": 1,
            "num_outcomes": 2,
            **options,
        }
    )


def test_a_png_is_a_picture_with_lines_in_the_theorems_colours(tmp_path):
    file = plot_bounds(tmp_path / "bounds.png", event=BoundedRange(0.001), num_shards=1000, target=TARGET)
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = image.imread(file)[..., :3]
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 1000
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        close = abs(pixels - [part / 255 for part in colour]).max(axis=-1) < 0.02
        assert close.sum() > 500


def test_an_svg_is_xml_without_a_date(tmp_path):
    file = plot_bounds(tmp_path / "bounds.SVG", event=GaussianDP(300.0), num_shards=100, target=TARGET)
    assert ET.parse(file).getroot().tag.endswith("svg")
    assert "<dc:date>" not in file.read_text()


def test_a_curve_is_what_the_theorem_says():
    curves = {curve.theorem: curve for curve in bounds().curves()}
    assert {"T1 (pure DP)", "T2 (zCDP)", "T3 (zCDP, few shards)", "description length"} <= set(curves)
    assert "mutual information" not in curves
    for curve in curves.values():
        assert list(curve.predictions) == sorted(curve.predictions)
        assert list(curve.alphas) == sorted(curve.alphas)
    for place in range(0, len(curves["T1 (pure DP)"].predictions), 10):
        count = curves["T1 (pure DP)"].predictions[place]
        best = certify({BoundedRange(0.001): count}, num_shards=1000, beta=1e-3, gamma=1e-3, num_outcomes=2)
        certified = [
            dict(zip(curve.predictions, curve.alphas, strict=True))[count]
            for curve in curves.values()
            if curve.standing == "certified"
        ]
        assert min(certified) == best.alpha
    assert curves["T1 (pure DP)"].limit == 21
    assert curves["paper's statement"].standing == "illustrative"


def test_the_picture_reaches_beyond_what_can_be_certified():
    drawn = bounds()
    widest = certify({BoundedRange(0.001): drawn.widest}, num_shards=1000, beta=1e-3, gamma=1e-3, num_outcomes=2)
    assert widest.is_vacuous
    assert Guarantee(drawn.vacuous_alpha * 1.0001, 1e-3, 1e-3).is_vacuous
    assert not Guarantee(drawn.vacuous_alpha * 0.9999, 1e-3, 1e-3).is_vacuous


@pytest.mark.parametrize(
    ("event", "target"),
    [
        (NonPrivate(), Guarantee(9, 0, 1e-3)),
        (BoundedRange(0.5), Guarantee(0, 0, 0)),
        (NonPrivate(), Guarantee(1, 0, 0)),
    ],
)
def test_there_is_a_picture_even_when_there_is_little_to_draw(tmp_path, event, target):
    file = plot_bounds(tmp_path / "bounds.png", event=event, num_shards=10, target=target, num_generations=3)
    assert file.stat().st_size > 5000


def test_the_picture_of_a_plan(tmp_path):
    assert plot_plan(str(tmp_path / "plan.png"), plan(num_records=1000, num_shards=10)).exists()


def test_only_png_and_svg(tmp_path):
    for name in ("bounds.pdf", "bounds"):
        with pytest.raises(ParameterError, match=r"\.png or \.svg"):
            plot_bounds(tmp_path / name, event=BoundedRange(0.1), num_shards=10, target=TARGET)


def test_a_place_that_does_not_exist_is_one_line(tmp_path):
    with pytest.raises(ParameterError, match="cannot be written"):
        plot_bounds(tmp_path / "missing" / "bounds.png", event=BoundedRange(0.1), num_shards=10, target=TARGET)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ParameterError, match=r"expunge\[plot\]"):
        plot_bounds(tmp_path / "bounds.png", event=BoundedRange(0.1), num_shards=10, target=TARGET)
