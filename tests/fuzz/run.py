"""Runs the targets of ``tests.fuzz.targets`` with atheris, one after the other, each in a process of its own.

    python -m tests.fuzz.run [--seconds N] [TARGET ...]

``--seconds`` is for all targets together. Inputs that libFuzzer found worth keeping go on from run to run in
``build/fuzz/<target>``; an input that broke something is beside them as ``crash-…``, and is tried again by
``python -m tests.fuzz.run --input FILE TARGET`` (which needs no atheris).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

BUILD = Path(__file__).parents[2] / "build" / "fuzz"
LONGEST_INPUT = 4096
SLOWEST = 30  # seconds for one input; machines may be busy
NAMES: Final = (
    "mqtt",
    "ais",
    "thresholds",
    "scenario",
    "records",
    "digest",
    "wire",
    "columns",
)  # to know them without importing them
OURS: Final = ["edge", "fairlead", "simulators", "topologies", "tests", "pyais", "yaml"]  # what is watched for coverage


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=120, help="for all targets together")
    parser.add_argument("--input", type=Path, help="run one input, without fuzzing")
    parser.add_argument("--fuzz", action="store_true", help=argparse.SUPPRESS)  # this process is the fuzzer
    given = parser.parse_args()
    if unknown := [name for name in given.targets if name not in NAMES]:
        parser.error(f"no target {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    chosen = given.targets or list(NAMES)
    if given.input is not None:
        from tests.fuzz.targets import TARGETS

        for name in chosen:
            TARGETS[name].run(given.input.read_bytes())
        return 0
    if given.fuzz:
        return _fuzz(chosen[0], given.seconds)
    failed = [name for name in chosen if not _spawned(name, max(1, given.seconds // len(chosen)))]
    for name in failed:
        sys.stderr.write(f"{name}: FAILED; the input is in {BUILD / name} as crash-* or timeout-*\n")
    sys.stdout.write(f"{len(chosen) - len(failed)} passed, {len(failed)} failed\n")
    return 1 if failed else 0


def _spawned(name: str, seconds: int) -> bool:
    command = [sys.executable, "-m", "tests.fuzz.run", "--fuzz", "--seconds", str(seconds), name]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - this very module


def _fuzz(name: str, seconds: int) -> int:
    try:
        import atheris
    except ImportError:
        sys.stderr.write(
            "atheris is not installed: make fuzz does that, or pip install -r tests/fuzz/requirements.txt\n"
        )
        return 2
    with atheris.instrument_imports(include=OURS):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    folder = BUILD / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = folder / "words"
    words.write_text("".join(f'"{_quoted(token)}"\n' for token in target.tokens))
    arguments = [
        name,
        str(corpus),
        *([f"-dict={words}"] if target.tokens else []),
        f"-artifact_prefix={folder}/",
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-timeout={SLOWEST}",
        "-rss_limit_mb=2048",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup(arguments, target.run)
    atheris.Fuzz()
    return 0


def _quoted(token: str) -> str:
    """As libFuzzer's dictionaries want it."""
    return "".join(f"\\x{byte:02x}" for byte in token.encode())


if __name__ == "__main__":
    raise SystemExit(main())
