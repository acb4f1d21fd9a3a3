"""Which way to compile the fused kernels is fastest on the GPU at hand.

    python lab/experiments/kernel_tuning.py [--networks mnist,cifar-10] [--out FILE]

Every kernel is tried in every way while the others stay as they are; everything is compiled side by side first, then
each is timed, the median of several runs. Prints the fastest of every kernel, and at last all of them together; what is
found goes by hand into `expunge_lab.kernels.tuning`. Sums and scores are compared with the layers in float32,
before and after (expected: less than 0.08 and 0.005 apart), and a profile says how long every kernel takes. Without a
GPU it says so; `--translate` goes as far as that goes without one. `--seconds 0` tries nothing: comparison, profile and
rates of the kernels as they are, in a minute.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from expunge.training.learners.jax import paper_network
from expunge_lab import kernels as fused
from expunge_lab.kernels.tuning import USUAL, Tuning, Tunings

SHAPES = {"mnist": fused.Shape(28, 1, 10, "tanh"), "cifar-10": fused.Shape(32, 3, 10, "relu")}
MODELS, BATCH, IMAGES, STEPS, EXAMPLES = 384, 64, 50_000, 10, 1024
CLIP_NORM = 0.1
KERNELS = ("forward", "deltas", "clip", "sums", "scores")
COMPILING = 0.7  # of the time at most; the rest is for measuring
NO_TIME = "no time left"


@dataclass(frozen=True)
class Candidate:
    """One kernel compiled another way."""

    kernel: str
    tuning: Tuning


def in_turns(shape: fused.Shape, kernels: list[str]) -> list[Candidate]:
    """Every way for every kernel, one of each in turns: if time runs out, it does so for all of them alike."""
    ways = [list(candidates(shape, [kernel])) for kernel in kernels]
    return [one for turn in itertools.zip_longest(*ways) for one in turn if one is not None]


def candidates(shape: fused.Shape, kernels: list[str]) -> Iterator[Candidate]:
    """Every way for every kernel."""
    for kernel in kernels:
        own = getattr(USUAL, kernel)
        choices = {
            "num_warps": (4, 8) if kernel in ("clip", "sums") else (own.num_warps,),
            "num_stages": (1,) if kernel == "clip" else (1, 2),
            "bounded": (False, True),
        }
        for values in itertools.product(*choices.values()):
            yield Candidate(kernel, Tuning(**dict(zip(choices, values, strict=True))))


class Problem:
    """Models, pictures and labels of one network."""

    def __init__(self, shape: fused.Shape, *, models: int = MODELS) -> None:
        rng = np.random.default_rng(0)
        side, channels = shape.side, shape.channels
        self.shape = shape
        network = paper_network(activation=shape.activation, input_shape=(side, side, channels))  # type: ignore[arg-type]
        keys = jax.random.split(jax.random.key(0), models)
        self.weights = fused.native(jax.vmap(lambda key: network.init(key, 10))(keys), shape)
        self.table = fused.patch_table(fused.noisy_pictures(shape, IMAGES, rng), shape)
        self.rows = jnp.asarray(rng.integers(0, IMAGES, (models, BATCH)), jnp.int32)
        self.labels = jnp.asarray(rng.integers(0, 10, (models, BATCH)), jnp.int32)
        self.many = jnp.asarray(np.tile(rng.permutation(IMAGES)[:EXAMPLES], (models, 1)), jnp.int32)

    def training(self, tunings: Tunings) -> tuple[Any, tuple[Any, ...]]:
        """A program of some steps, and its arguments."""

        def train(start: Any, table: Any, rows: Any, labels: Any) -> Any:
            def step(number: Any, own: Any) -> Any:
                moved = (rows + number) % IMAGES
                sums = fused.clipped_sums(self.shape, table, moved, labels, own, clip_norm=CLIP_NORM, tunings=tunings)
                return jax.tree.map(lambda old, total: old - 0.01 * total, own, sums)

            return jax.lax.fori_loop(0, STEPS, step, start)

        return jax.jit(train), (self.weights, self.table, self.rows, self.labels)

    def scoring(self, tunings: Tunings) -> tuple[Any, tuple[Any, ...]]:
        """A program of many forward passes, and its arguments."""

        def score(weights: Any, table: Any, rows: Any) -> Any:
            return fused.scores(self.shape, table, rows, weights, tunings=tunings).argmax(axis=2).sum(axis=1)

        return jax.jit(score), (self.weights, self.table, self.many)

    def program(self, kernel: str, tunings: Tunings) -> tuple[Any, tuple[Any, ...], int]:
        """Whichever has this kernel, its arguments, and how many examples it takes."""
        models = self.rows.shape[0]
        if kernel == "scores":
            return *self.scoring(tunings), models * EXAMPLES
        return *self.training(tunings), models * BATCH * STEPS


def compiled(program: Any, arguments: tuple[Any, ...], *, until: float) -> Any:
    """The executable, or what went wrong; nothing is begun after `until` on the clock."""
    if time.perf_counter() > until:
        return NO_TIME
    try:
        return program.lower(*arguments).compile()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """The median, after one run that is not counted."""
    jax.block_until_ready(run())
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - start)
    return median(found)


def errors(shape: fused.Shape, tunings: Tunings) -> dict[str, float]:
    """How far sums and scores are from the layers in float32, relative."""
    return asdict(fused.differences(shape, models=4, batch=BATCH, tunings=tunings))


def profile(run: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds on the device of everything that ran, the longest first."""
    jax.block_until_ready(run())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        spent: dict[str, float] = {}
        for path in Path(folder).rglob("*.xplane.pb"):
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
                if "gpu" not in plane.name.lower():
                    continue
                for line in plane.lines:
                    if not line.name.startswith("Stream"):  # the other lines tell the same story again
                        continue
                    for event in line.events:
                        spent[event.name] = spent.get(event.name, 0.0) + event.duration_ns / 1e6
    return {name: round(value, 3) for name, value in sorted(spent.items(), key=lambda item: -item[1])[:20]}


def tune(name: str, kernels: list[str], report: Callable[..., None], limit: float) -> None:
    """Try everything, a kernel at a time; after `limit` seconds only the best so far are measured together."""
    shape, start = SHAPES[name], time.perf_counter()
    report(network=name, errors=errors(shape, USUAL))
    problem = Problem(shape)
    for kernel in ("forward", "scores"):
        run, arguments, examples = problem.program(kernel, USUAL)
        spent = profile(lambda run=run, given=arguments: run(*given))  # type: ignore[misc]
        report(network=name, profile=spent, examples=examples)
    tried, until = in_turns(shape, kernels) if limit > 0 else [], start + COMPILING * limit
    with ThreadPoolExecutor() as pool:
        made = [problem.program(each.kernel, replace(USUAL, **{each.kernel: each.tuning})) for each in tried]
        programs = list(pool.map(lambda program: compiled(program[0], program[1], until=until), made))
    done = sum(not isinstance(program, str) for program in programs)
    report(network=name, compiled=done, of=len(programs), seconds=time.perf_counter() - start)
    best: dict[str, tuple[float, Tuning]] = {}
    for each, program, (_, arguments, examples) in zip(tried, programs, made, strict=True):
        if time.perf_counter() - start > limit:
            program = NO_TIME
        if isinstance(program, str):
            report(network=name, kernel=each.kernel, tuning=asdict(each.tuning), failed=program)
            continue
        try:
            rate = examples / seconds(lambda run=program, given=arguments: run(*given), repeats=3) / 1e6  # type: ignore[misc]
        except jax.errors.JaxRuntimeError as error:
            report(network=name, kernel=each.kernel, tuning=asdict(each.tuning), failed=str(error)[:200])
            continue
        report(network=name, kernel=each.kernel, tuning=asdict(each.tuning), mega_per_s=round(rate, 2))
        if each.kernel not in best or rate > best[each.kernel][0]:
            best[each.kernel] = rate, each.tuning
    together = replace(USUAL, **{kernel: tuning for kernel, (_, tuning) in best.items()})
    for what, tunings in (("as they are", USUAL), ("the fastest", together))[: 2 if best else 1]:
        for kernel in ("forward", "scores"):
            program, arguments, examples = problem.program(kernel, tunings)
            rate = examples / seconds(lambda run=program, given=arguments: run(*given)) / 1e6  # type: ignore[misc]
            report(network=name, what=what, of="scores" if kernel == "scores" else "gradients", mega_per_s=rate)
    if best:
        found = {kernel: asdict(tuning) for kernel, (_, tuning) in best.items()}
        report(network=name, fastest=found, errors=errors(shape, together))


def translate(name: str, kernels: list[str]) -> None:
    """As far as it goes without a GPU: every candidate as the compiler's input."""
    problem = Problem(SHAPES[name], models=2)
    tried = in_turns(problem.shape, kernels)
    for each in tried:
        program, arguments, _ = problem.program(each.kernel, replace(USUAL, **{each.kernel: each.tuning}))
        program.trace(*arguments).lower(lowering_platforms=("cuda",))
    sys.stdout.write(f"{name}: {len(tried)} candidates translated\n")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="mnist,cifar-10")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--out", type=Path, help="a file for every line of the report, as JSON")
    parser.add_argument("--seconds", type=float, default=150.0, help="for every network's candidates; 0 tries none")
    parser.add_argument("--translate", action="store_true", help="compile nothing, time nothing; needs no GPU")
    options = parser.parse_args()
    names, kernels = options.networks.split(","), options.kernels.split(",")
    for given, known in ((names, SHAPES), (kernels, KERNELS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    if options.translate:
        for name in names:
            translate(name, kernels)
        return 0
    if jax.default_backend() != "gpu":
        sys.stderr.write("there is no GPU here that JAX can use; try --translate\n")
        return 2
    lines: list[str] = []

    def report(**facts: Any) -> None:
        lines.append(json.dumps(facts))
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
        if options.out is not None:
            options.out.write_text("\n".join(lines) + "\n")

    report(device=str(jax.devices()[0]), jax=jax.__version__, models=MODELS, batch=BATCH)
    for name in names:
        tune(name, kernels, report, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
