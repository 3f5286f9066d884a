"""Launches that are called wrongly or go wrong, and the processes that they run in."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from napkin.errors import InputError
from napkin.run.interpret import Traffic, run
from napkin.run.worker import KernelError

KERNELS = Path(__file__).parent / "kernels"
ROOT = Path(__file__).parents[2]
HEADER = "import triton\nimport triton.language as tl\n\n\n"


def run_text(body: str, args: list, grid: tuple[int, ...] = (1,), **constexprs: object) -> Traffic:
    return run(HEADER + textwrap.dedent(body), "k", grid, args, constexprs)


NOTHING = """
    @triton.jit
    def k(X, n, BLOCK: tl.constexpr):
        pass
"""
FILL = """
    @triton.jit
    def k(X, n: tl.constexpr):
        tl.store(X + tl.arange(0, n), 7.0)
"""
X4 = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("args", "grid", "constexprs", "message"),
    [
        ([X4], (1,), {"BLOCK": 4}, r"takes 2 arguments \(X, n\) beside its compile-time ones"),
        ([X4, 1], (1,), {}, "needs a compile-time 'BLOCK'"),
        ([X4, 1], (1,), {"BLOK": 4}, "has no parameter 'BLOK'; did you mean 'BLOCK'"),
        ([X4, 1], (1, 70000), {"BLOCK": 4}, "axis 1 of the grid has 70000 programs"),
        ([X4, 1], (1, 1, 1, 1), {"BLOCK": 4}, "one to three sizes"),
        ([X4, "one"], (1,), {"BLOCK": 4}, "arrays, ints and floats, not str"),
        ([X4.astype(complex), 1], (1,), {"BLOCK": 4}, "no array of complex128"),
    ],
)
def test_a_wrong_call_is_refused(
    args: list, grid: tuple[int, ...], constexprs: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_text(NOTHING, args, grid, **constexprs)


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no kernel 'matmull' in this file; did you mean 'matmul'"):
        run(KERNELS / "matmul.py", "matmull", (1,), [], {})
    with pytest.raises(InputError, match="cannot read the kernel"):
        run(tmp_path / "absent.py", "k", (1,), [], {})
    with pytest.raises(InputError, match=r"give a file as a pathlib\.Path"):
        run("kernel.py", "k", (1,), [], {})
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(KernelError, match=r"broken\.py does not import: ModuleNotFoundError"):
        run(broken, "k", (1,), [], {})


def test_an_error_shows_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(HEADER + "@triton.jit\ndef k(X):\n    tl.store(X, missing)\n")
    with pytest.raises(KernelError, match=r"NameError.*, at .*wrong\.py:7: tl.store\(X, missing"):
        run(file, "k", (1,), [X4], {})


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    for value in (1.0, 2.0):
        file.write_text(HEADER + f"@triton.jit\ndef k(X):\n    tl.store(X, {value})\n")
        x = np.zeros(1, np.float32)
        run(file, "k", (1,), [x], {})
        assert x[0] == value


def test_a_launch_that_hangs_or_dies_leaves_the_next_one_well() -> None:
    forever = "@triton.jit\ndef k(X):\n    while True:\n        pass\n"
    with pytest.raises(KernelError, match=r"still running after 0\.5 s"):
        run(HEADER + forever, "k", (1,), [X4], {}, timeout=0.5)
    with pytest.raises(KernelError, match=r"the process that runs the kernel died \(SIGABRT\)"):
        run("import os\nos.abort()\n", "k", (1,), [X4], {})
    assert run_text(FILL, [X4.copy()], n=4)["X", "write"] == 16


def test_the_users_process_is_left_alone() -> None:
    triton = pytest.importorskip("triton")
    before = (triton.language.load, triton.language.tensor.__add__, triton.language.core.reduce)
    run_text(FILL, [X4.copy()], n=4)
    assert before == (
        triton.language.load,
        triton.language.tensor.__add__,
        triton.language.core.reduce,
    )


def test_it_runs_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    script = tmp_path / "launch.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        from pathlib import Path
        import numpy as np
        from napkin.run.compile import Job, resources_many, specialise
        from napkin.run.interpret import run
        x, out = np.ones((8, 16), np.float32), np.zeros((8, 16), np.float32)
        kernels = Path({str(KERNELS)!r}) / "descriptors.py"
        blocks = dict(BLOCK_R=8, BLOCK_C=16)
        print(run(kernels, "copy_device", (1, 1), [x, out, 8, 16], blocks).total(), out.sum())
        types = specialise(dict(X=x, Out=out, rows=8, cols=16))
        (found,) = resources_many([Job(kernels, "copy_device", types.signature, blocks)])
        print(found.registers > 0)
        print("triton" in sys.modules, "torch" in sys.modules)
        """)
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["1024", "128.0", "True", "False", "False"], done.stderr
