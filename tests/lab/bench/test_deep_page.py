"""Measurements of networks are kept as JSON, and the page shows all that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("jax")

from expunge.core.errors import InputError
from expunge.training.learners.jax import paper_network
from expunge_lab.bench import Environment, Line, Report, Target
from expunge_lab.bench.deep_page import Record, Table, patch_bytes, read_records, to_page, write_record

KEPT = Path(__file__).parents[3] / "lab" / "results" / "performance"

LINES = (
    Line.cost("an example-gradient: fused", [1e-7, 1.25e-7], "its arithmetic at 989 TFLOP/s", [2.5e-9, 2.5e-9]),
    Line.faster("an example-gradient: ours", [5e-5], "vmap(grad)", [3e-4], target=Target.ratio_at_least(3)),
    Line.alone("a trial", [0.5]),
)


def make_record(device: str = "Chip X-1") -> Record:
    table = Table("Trials:", ("what", "value"), (("accuracy", ".97"),))
    return Record(device, "2021-06-08", "expunge bench deep", {"JAX": "0.9"}, 2, False, LINES, ("A remark.",), (table,))


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    record = make_record()
    assert write_record(record, tmp_path) == tmp_path / "chip-x-1.json"
    assert read_records(tmp_path) == [record]
    write_record(make_record("CPU"), tmp_path)
    assert [found.device for found in read_records(tmp_path)] == ["Chip X-1", "CPU"]


def test_a_device_measured_again_takes_the_place_of_its_record(tmp_path: Path) -> None:
    for _ in range(2):
        write_record(make_record(), tmp_path)
    assert len(read_records(tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("[", "no file of measurements"), ("{}", "no file of measurements"), ('{"format": 2}', "format 2")],
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(InputError, match=f"odd.json .*{words}"):
        read_records(tmp_path)


def test_the_record_of_a_run() -> None:
    environment = Environment("2021-06-08", "1.2.3", "3.11.0", "2.0.0", "1.6.0", 2)
    record = Record.of(Report(True, environment, {"deep": list(LINES)}), command="expunge bench deep --quick")
    assert (record.date, record.command, record.num_cores, record.quick) == (
        "2021-06-08",
        "expunge bench deep --quick",
        2,
        True,
    )
    assert set(record.versions) == {"expunge", "Python", "JAX"}
    assert "figures mean nothing" in to_page([record])


def test_the_page_has_rates_shares_and_everything_that_was_kept() -> None:
    text = to_page([make_record(), make_record("CPU")])
    rows = {row.split(" | ")[0].removeprefix("| "): row.split(" | ") for row in text.splitlines()}
    fused = rows["an example-gradient: fused"]
    assert fused[2] == "8.89 M (8–10)"  # one over the median of the times, and over their ends
    assert fused[6] == "2.2%"
    assert rows["an example-gradient: ours"][2] == "20,000"
    assert rows["an example-gradient: ours"][6:] == ["—", "≥ 3×", "yes |"]
    assert rows["a trial"][2] == "—"
    assert text.count("A remark.") == text.count("Trials:") == 2
    assert "## CPU, 2021-06-08" in text


def test_what_an_example_costs_is_counted() -> None:
    """Two bytes a value: four times 196 patches of 64 values, six times 25 patches of 256."""
    assert patch_bytes(paper_network()) == 2 * (4 * 196 * 64 + 6 * 25 * 256)
    operations = paper_network().example_operations(10)
    text = to_page([])
    assert f"| 26,010 | {operations['forward'] / 1e6:.2f} MFLOP | {operations['gradient'] / 1e6:.2f} MFLOP |" in text
    assert f"{989e12 / operations['gradient'] / 1e6:.0f} M example-gradients" in text


def test_tables_are_well_formed() -> None:
    blocks = [block for block in to_page([make_record()]).split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3
    assert all(len({row.count("|") for row in block.splitlines()}) == 1 for block in blocks)


def test_what_the_repository_keeps_can_be_read_and_is_on_its_page() -> None:
    """After a change of words: write `to_page(read_records(KEPT))` again, which measures nothing."""
    records = read_records(KEPT)
    page = (KEPT.parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert any("H200" in record.device for record in records)
    assert all(not record.quick for record in records)
    assert to_page(records) == page
    assert all(json.loads(path.read_text(encoding="utf-8"))["format"] == 1 for path in KEPT.glob("*.json"))
