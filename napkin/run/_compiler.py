"""The compiling child: compiles kernels for GPUs that need not be there.

Runs in a process of its own (see `worker`), with Triton not interpreting. All that napkin knows
of Triton's compiler is here; it was read in Triton 3.6 and 3.9.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import ir, nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from napkin.errors import InputError, check_known
from napkin.run._source import find, load
from napkin.run._wire import Job, Resources
from napkin.run.assembler import assembler, right
from napkin.run.machine_code import instructions, unwritten
from napkin.run.worker import CompileError

CUBIN = "kernel.cubin"
_scratch = tempfile.TemporaryDirectory(prefix="napkin-")


def handle(job: Job) -> Resources | int:
    """What is wanted of one kernel: its resources, or its shared memory alone, in bytes; raises
    `CompileError` when the compiler refuses it."""
    kernel = find(load(str(job.source), job.path), job.kernel, triton.JITFunction)
    source = _source(kernel, job)
    capability = int(job.arch.removeprefix("sm_"))
    target = GPUTarget("cuda", capability, 32)
    # 3.9 warns unless fusing multiply with add is chosen, which is what every version does.
    options: dict[str, object] = {"enable_fp_fusion": True, "num_warps": job.num_warps}
    options |= {"num_stages": job.num_stages, **job.options}
    said: list[str] = []
    try:
        with _quiet(said), assembler(capability):
            if job.wanted == "allocation":
                return _allocated(source, target, options)
            compiled: Any = triton.compile(source, target=target, options=options)
            sound = right(capability)
    except Exception as error:
        raise CompileError(_explain(error, job, "".join(said))) from None
    shared = int(compiled.metadata.shared)
    if job.wanted == "compilation":
        return shared
    file = Path(_scratch.name) / CUBIN
    file.write_bytes(compiled.asm["cubin"])
    registers, spills, note = _usage(file)
    if not sound and not note:
        note = _checked(file, job)
    spilled = _spilled() if spills else spills
    columns = int(getattr(compiled.metadata, "tmem_size", None) or 0)
    loads = _loads(compiled.asm["ptx"])
    return Resources(shared, registers, spills, columns, note, loads, spilled)


class _Reached(Exception):
    """The compiler is about to leave Triton's own representation."""


def _allocated(source: Any, target: GPUTarget, options: Mapping[str, object]) -> int:
    """Bytes of shared memory that the compiler allocates, from its own passes: those after them,
    LLVM and the assembler, take most of a compilation and change nothing about it."""
    backend: Any = make_backend(target)
    chosen = backend.parse_options({**options, **source.parse_options()})
    context: Any = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    given = backend.get_codegen_implementation(chosen), backend.get_module_map()
    module: Any = source.make_ir(target, chosen, *given, context)
    stages: dict[str, Callable[..., Any]] = {}
    backend.add_stages(stages, chosen, source.language)
    metadata: dict[str, Any] = {}
    for name in itertools.takewhile(lambda name: name != "llir", stages):
        module = stages[name](module, metadata)
    passes: Any = nvidia.passes.ttgpuir
    last = passes.add_to_llvmir

    def reach(manager: Any, *_: object) -> None:
        raise _Reached(manager)

    passes.add_to_llvmir = reach
    try:
        stages["llir"](module, metadata)
    except _Reached as reached:
        reached.args[0].run(module, "allocate_shared_memory")
    finally:
        passes.add_to_llvmir = last
    return int(module.get_int_attr("ttg.shared"))


def _source(kernel: Any, job: Job) -> Any:
    """A kernel with its types and its constants, as Triton's launcher would hand it over."""
    names: list[str] = kernel.arg_names
    for name in [*job.signature, *job.constexprs, *job.divisible, *job.ones]:
        check_known(name, names, f"kernel {job.kernel} has no parameter {name!r}")
    constants = {**dict.fromkeys(job.ones, 1), **job.constexprs}
    missing = [name for name in names if name not in constants and name not in job.signature]
    if missing:
        raise InputError(f"kernel {job.kernel} needs a type or a value for {', '.join(missing)}")
    signature = {name: "constexpr" if name in constants else job.signature[name] for name in names}
    for name, kind in signature.items():
        if kind == "constexpr" and name not in constants:
            raise InputError(f"kernel {job.kernel} needs a value for the compile-time {name!r}")
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if name in job.divisible and name not in constants
    }
    if "Gluon" in type(kernel).__name__:
        return _in_gluon(kernel, signature, constants, attributes)
    return ASTSource(kernel, signature, constants, attributes)


def _in_gluon(
    kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any], attributes: Any
) -> Any:
    """The same of a kernel in Gluon, whose descriptors say how boxes lie in shared memory."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    layout_of: Any = gl.NVMMASharedLayout.get_default_for
    names: list[str] = kernel.arg_names
    laid = dict(signature)
    for name, kind in signature.items():
        if found := re.fullmatch(r"tensordesc<(\w+)\[(.*)\]>", kind):
            box = [int(n) for n in found[2].split(",")]
            layout = layout_of(
                box, {"fp32": gl.float32, "fp8e4nv": gl.float8e4nv}.get(found[1], gl.float16)
            )
            laid[name] = f"tensordesc<{found[1]}{box},{layout!r}>"
    by_place = {(names.index(name),): value for name, value in constants.items()}
    return GluonASTSource(kernel, laid, by_place, attributes)


def _usage(cubin: Path) -> tuple[int | None, int | None, str]:
    """Registers and bytes of stack of a thread; the stack of a Triton kernel holds spills."""
    try:
        said = _tool("cuobjdump", "--dump-resource-usage", cubin)
    except (OSError, subprocess.CalledProcessError) as error:
        return None, None, f"registers unknown: cuobjdump failed ({type(error).__name__})"
    found = re.search(r"REG:(\d+)\s+STACK:(\d+)", said)
    if found is None:
        return None, None, "registers unknown: cuobjdump printed no usage"
    return int(found[1]), int(found[2]), ""


def _checked(cubin: Path, job: Job) -> str:
    """Why machine code cannot be checked, or nothing; raises `CompileError` where it is wrong."""
    try:
        listing = _tool("cuobjdump", "--dump-sass", cubin)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"machine code not checked: cuobjdump failed ({type(error).__name__})"
    if wrong := unwritten(instructions(listing)):
        raise CompileError(
            f"kernel {job.kernel} is assembled wrong for {job.arch}: {wrong[0]} reads a "
            "register that nothing wrote; set TRITON_PTXAS_PATH to a ptxas of CUDA 12.9 or later"
        )
    return ""


def _loads(ptx: str) -> dict[int, int]:
    """How many instructions load from global memory, by the bits that a thread asks for."""
    plain = re.findall(r"\bld\.global[.:\w]*?(?:\.v(\d+))?\.[a-z]+(\d+)\s", ptx)
    copied = re.findall(r"\bcp\.async\.c[ag]\.shared\.global\s[^;]*?\], (0x\w+)", ptx)
    bits = [int(many or 1) * int(each) for many, each in plain]
    return dict(Counter([*bits, *(8 * int(size, 16) for size in copied)]))


def _spilled() -> int | None:
    """Bytes that the code of a thread, read once from end to end, stores to local memory."""
    try:
        code = _tool("nvdisasm", "--print-code", Path(_scratch.name) / CUBIN)
    except (OSError, subprocess.CalledProcessError):
        return None
    return sum(int(bits or 32) // 8 for bits in re.findall(r"\bSTL(?:\.(64|128))?\b", code))


def _tool(name: str, *arguments: str | Path) -> str:
    """What one of the CUDA tools that come with Triton prints."""
    command = [_place(name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _place(name: str) -> Path:
    """Where Triton has put a CUDA tool."""
    return Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / name


def _explain(error: BaseException, job: Job, said: str) -> str:
    """One line for what the compiler refused, with the kernel's own line where it is known."""
    place = ""
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    line = getattr(node, "lineno", 0)  # of a name that Triton refuses, the node is that name
    if isinstance(source, str) and 0 < line <= len(lines := source.splitlines()):
        place = f", at: {lines[line - 1].strip()}"
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    text = getattr(root, "error_message", None) or str(root)
    diagnostic = re.search(r"error: (.+)", said)
    if diagnostic:
        text = diagnostic[1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    kind = "" if diagnostic else f"{type(root).__name__}: "
    return f"kernel {job.kernel} does not compile for {job.arch}: {kind}{first}{place}"


@contextlib.contextmanager
def _quiet(said: list[str]) -> Generator[None]:
    """Keep what the compiler prints, which comes from below Python, and put it in `said`."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile("w+") as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            sink.seek(0)
            said.append(sink.read())


def _ensure_cache() -> None:
    """Use Triton's cache where it can be written, and a passing one where it cannot."""
    folder = Path(knobs.cache.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        os.environ["TRITON_CACHE_DIR"] = _scratch.name


_ensure_cache()
