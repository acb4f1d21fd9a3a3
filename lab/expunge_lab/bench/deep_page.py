"""The page about networks: the measurements of each device, and what was counted.

Measurements are kept in one JSON file for each device, since no machine has all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expunge.core.errors import InputError
from expunge_lab.bench.measurement import Line, Spread, Target
from expunge_lab.bench.page import COLUMNS, QUICK_WARNING, cells
from expunge_lab.bench.suites import Report

if TYPE_CHECKING:
    from expunge.training.learners.jax import Network


_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that are no lines of a benchmark, with a paragraph about them."""

    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured on one device, when, with what and by which command."""

    device: str
    date: str
    command: str
    versions: dict[str, str]
    num_cores: int | None
    quick: bool
    lines: tuple[Line, ...]
    remarks: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    @classmethod
    def of(cls, report: Report, *, command: str) -> Record:
        """This run's measurements, on JAX's default device."""
        import jax

        about = report.environment
        kind = jax.devices()[0].device_kind
        return cls(
            device="CPU" if kind == "cpu" else kind,
            date=about.date,
            command=command,
            versions={"expunge": about.expunge, "Python": about.python, "JAX": jax.__version__},
            num_cores=about.num_cores,
            quick=report.quick,
            lines=tuple(report.lines["deep"]),
        )

    @property
    def file_name(self) -> str:
        """The device, in letters that every file system takes."""
        return re.sub(r"[^a-z0-9]+", "-", self.device.lower()).strip("-") + ".json"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"format": _FORMAT, **asdict(self), "lines": [line.to_dict() for line in self.lines]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The record again."""
        fields = {name: data[name] for name in ("device", "date", "command", "versions", "num_cores", "quick")}
        tables = (
            Table(table["about"], tuple(table["columns"]), tuple(tuple(row) for row in table["rows"]))
            for table in data["tables"]
        )
        lines = tuple(_line(line) for line in data["lines"])
        return cls(**fields, lines=lines, remarks=tuple(data["remarks"]), tables=tuple(tables))


def write_record(record: Record, folder: Path) -> Path:
    """Into the file of its device, in place of what was measured there before."""
    path = folder / record.file_name
    path.write_text(json.dumps(record.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read_records(folder: Path) -> list[Record]:
    """All that are kept in a folder, in the order of their files' names."""
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Record:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        version = data["format"]
        if version == _FORMAT:
            return Record.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path.name} is no file of measurements: {error!r}") from error
    raise InputError(f"{path.name} has the format {version!r}, and this version reads {_FORMAT}")


def _line(data: Mapping[str, Any]) -> Line:
    other, ratio, target = (data[name] for name in ("other", "ratio", "target"))
    return Line(
        data["what"],
        Spread(**data["ours"]),
        data["unit"],
        data["other_name"],
        None if other is None else Spread(**other),
        None if ratio is None else Spread(**ratio),
        data["comparison"],
        None if target is None else Target(**target),
    )


_NUM_CLASSES = 10
_PEAK = 989e12  # bfloat16 operations a second of an H100 or H200, by its data sheet
_BANDWIDTH = 4.8e12  # bytes a second of an H200's memory, by its data sheet
_RATED = ("an example-gradient", "a forward pass", "the same")  # lines of one example, whose rate is of interest
_LIMIT = "its arithmetic at "  # the other side is what the chip could do

INTRODUCTION = """\
What `expunge.training.learners.jax` reaches, with what was counted before it was measured. An *example-gradient* is
one forward pass, one backward pass and the clipping of one example (DP-SGD). This page is written by

    expunge bench deep --out docs/performance.md --kept lab/results/performance

which measures the device at hand, keeps the figures in that folder, and puts those kept from other devices beside them.
Every ratio comes from one run in which both sides took turns; times are medians."""

ON_CPU = """\
On a CPU a program holds one model, and as many programs run side by side as there are cores. Batching models does not
pay there, and one program for one model is what makes the weights independent, to the bit, of what else is trained. The
gain over `vmap(grad)` comes from norms instead of gradients of every example (of the convolutions the gradients of a
batch's examples are kept where they take little room, since that spares a product), from convolutions as products of
patches cut by space-to-depth, from pools as maxima of slices, and from a loop that is compiled as a whole. Batches of
more than 64 examples are clipped part by part, so that what is kept for the way back stays in the caches.

The other side is DP-SGD as it is usually written: a compiled step, called in a loop, with JAX's own convolutions."""

ON_GPU = """\
On a GPU the paper's network has kernels of its own, for experiments with thousands of models; other networks, and the
learner, run layer by layer. The kernels do arithmetic that is not counted above: filters are spread over all that four
neighbouring places see, so that one product serves them all, and the rows of a table are moved by eight by a product
with ones and zeros, which leaves everything in registers. By one row they are moved from thread to thread, without a
product, which rests on how the compiler spreads a product's output over threads: every campaign begins by comparing the
kernels with the layers. Pictures are stored in the order in which threads hold a product's operand, so that they are
loaded to where they are needed. What is left is waiting: an example is some 30 products of 64 rows one after another,
and registers and shared memory have room for only a few programs on a multiprocessor, too few to hide every wait.
`python lab/experiments/kernel_tuning.py --seconds 0` says how long each kernel takes."""

ONE_SHARD = """\
On a CPU one shard of k costs 1/k of the processor time of all of them, and a call's own cost on top. In wall time all
shards use all cores and one shard uses one, so that its share is larger by the number of cores.

On a GPU a program always holds `models_at_once` models, so that bits do not depend on companions, and missing ones are
padding: the smallest unit of work is a program. The default is one model: a deletion is then as cheap as it can be, and
one shard of k costs 1/k of all of them. With `models_at_once=16` all of them together are trained faster, and one of
them more slowly, because it is a program of 16."""


def to_page(records: Sequence[Record]) -> str:
    """The page of these measurements."""
    parts = ["# Performance of networks", INTRODUCTION, "## What an example costs", _costs(), _limits()]
    for record in records:
        parts += _section(record)
    parts += ["## On a CPU", ON_CPU, "## On a GPU", f"{ON_GPU} {_traffic()}", "## Retraining one shard", ONE_SHARD]
    return "\n\n".join(parts) + "\n"


def _section(record: Record) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    cores = "" if record.num_cores is None else f", {record.num_cores} cores"
    parts = [f"## {record.device}, {record.date}", f"Measured by `{record.command}`: {versions}{cores}."]
    if record.quick:
        parts.append(f"**{QUICK_WARNING}**")
    columns = (*COLUMNS[:2], "a second", *COLUMNS[2:5], "share of the limit", *COLUMNS[5:])
    parts += [_markdown(columns, [_row(line) for line in record.lines]), *record.remarks]
    for table in record.tables:
        parts += _about(table)
    return parts


def _about(table: Table) -> list[str]:
    return [table.about, _markdown(table.columns, table.rows)]


def _row(line: Line) -> tuple[str, ...]:
    plain = cells(line)
    return (*plain[:2], _rate(line), *plain[2:5], _share(line), *plain[5:])


def _rate(line: Line) -> str:
    if not line.what.startswith(_RATED):
        return "—"
    rate, low, high = (1 / value for value in (line.ours.median, line.ours.high, line.ours.low))
    size, unit = (1e6, " M") if rate >= 1e6 else (1.0, "")
    middle, lowest, highest = (f"{value / size:,.3g}" if size > 1 else f"{value:,.0f}" for value in (rate, low, high))
    return f"{middle}{unit}" if lowest == highest else f"{middle}{unit} ({lowest}–{highest})"


def _share(line: Line) -> str:
    if line.ratio is None or line.other_name is None or not line.other_name.startswith(_LIMIT):
        return "—"
    return f"{1 / line.ratio.median:.1%}"


def _networks() -> dict[str, Network]:
    from expunge.training.learners.jax import paper_network

    return {
        "MNIST network: the paper's, tanh, 28 × 28 × 1": paper_network(),
        "CIFAR-10 network: the paper's, ReLU, 32 × 32 × 3": paper_network(activation="relu", input_shape=(32, 32, 3)),
    }


def _costs() -> str:
    rows = []
    for name, network in _networks().items():
        operations = network.example_operations(_NUM_CLASSES)
        counted = (f"{operations[part] / 1e6:.2f} MFLOP" for part in ("forward", "gradient"))
        weights = f"{network.num_parameters(_NUM_CLASSES):,}"
        rows.append((name, weights, *counted, f"{patch_bytes(network) / 1e3:.0f} kB"))
    columns = ("network", "weights", "forward", "example-gradient", "patches moved, bfloat16")
    return _markdown(columns, rows)


def patch_bytes(network: Network) -> int:
    """What an example moves through memory for patches alone, layer by layer, two bytes a value.

    Of every convolution they are written once and read for the output, the norm and the gradient; the gradients of the
    patches, of all but the first, are written and read.
    """
    from expunge.training.learners.jax import Conv

    total, is_first = 0, True
    for layer, shape in zip(network.layers, network.shapes(_NUM_CLASSES), strict=False):
        if isinstance(layer, Conv):
            found = layer.geometry(shape)
            total += 2 * found.num_patches * found.patch_size * (4 if is_first else 6)
            is_first = False
    return total


def _limits() -> str:
    mnist = next(iter(_networks().values()))
    moved = patch_bytes(mnist)
    operations = mnist.example_operations(_NUM_CLASSES)["gradient"]
    return (
        "Operations are those of `Network.example_operations`: products alone, norms by the form that takes fewer. "
        f"At {_PEAK / 1e12:.0f} TFLOP/s (bfloat16, an H200's data sheet) they would allow "
        f"{_PEAK / operations / 1e6:.0f} M example-gradients a second of the MNIST network; compiled layer by layer, "
        f"its patches alone allow {_BANDWIDTH / moved / 1e6:.0f} M/s at {_BANDWIDTH / 1e12:.1f} TB/s, however "
        "fast the arithmetic is."
    )


def _traffic() -> str:
    from expunge_lab import kernels as fused

    shapes = fused.Shape(28, 1, _NUM_CLASSES, "tanh"), fused.Shape(32, 3, _NUM_CLASSES, "relu")
    mnist, cifar = (fused.example_bytes(shape) for shape in shapes)
    return (
        f"An example moves {mnist / 1e3:.0f} kB between kernels (CIFAR-10 network: {cifar / 1e3:.0f} kB), caches left "
        f"aside, which at {_BANDWIDTH / 1e12:.1f} TB/s would allow {_BANDWIDTH / mnist / 1e6:.0f} M/s "
        f"({_BANDWIDTH / cifar / 1e6:.0f} M/s): the nearest limit."
    )


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)
