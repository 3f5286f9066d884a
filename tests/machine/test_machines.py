"""The shipped machine files hold together, and a wrong one is refused in words that help."""

import subprocess
import sys
from pathlib import Path

import pytest

from napkin.errors import InputError
from napkin.machine.machine_file import written
from napkin.machine.machines import machine, machines

SHIPPED_NAMES = (
    *("a100", "a100_40", "b200", "h100", "h100_pcie", "h200", "l40s"),
    *("mi300x", "rtx4090", "rtx5090"),
)
SHIPPED = Path(__file__).parents[2] / "napkin" / "machine"


def test_the_shipped_machines() -> None:
    assert machines() == SHIPPED_NAMES
    assert machine("a100_80") == machine("a100")


@pytest.mark.parametrize("name", machines())
def test_every_figure_is_positive_and_has_a_source(name: str) -> None:
    figures = dict(machine(name).figures())
    wanted = {"chip.sms", "compute.tensor_bf16", "levels.shared.capacity", "granules.mma_rows"}
    assert wanted <= set(figures)
    assert "pipes.shared-registers.rate" in figures
    for key, figure in figures.items():
        assert figure.value > 0, key
        assert figure.source.strip(), key
        assert figure.unit, key


@pytest.mark.parametrize("name", machines())
def test_the_figures_agree_with_one_another(name: str) -> None:
    m = machine(name)
    assert m.threads_per_sm == m.granules["warp"].value * m.warps_per_sm
    assert (m.level("shared").count, m.level("registers").count) == (m.sms, m.sms)
    assert m.level("dram").count == 1
    assert m.dram_rate < m.l2_rate < m.pipe("shared", "registers").rate.value
    # 32 banks of 4 bytes per clock and SM
    assert m.pipe("shared", "registers").rate.value == pytest.approx(128 * m.sms * m.clock, 1e-3)
    assert m.peak("fp16") == m.peak("bf16") >= 2 * m.peak("tf32") >= 2 * m.peak("fp32")
    # each level above holds more than all of the next together
    for above, below in (("nvme", "host"), ("host", "dram")):
        assert m.level(above).capacity.value >= m.level(below).capacity.value
        assert m.pipe(above, below).rate.value < m.dram_rate


@pytest.mark.parametrize("name", [n for n in machines() if n != "mi300x"])
def test_what_cuda_promises(name: str) -> None:
    m = machine(name)
    assert m.cuda
    assert m.shared_per_block == m.shared_per_sm - 1024  # 1 KB per block is the system's
    assert m.registers_per_sm == 4 * 65536
    assert m.registers_per_thread == 4 * 255
    # a power of two of dense fp16 FLOP per clock and SM; the full rate with fp32 sums on l40s
    per_clock = {80: 2048, 89: 512, 90: 4096, 100: 8192, 120: 512}[m.capability]
    assert m.per_clock("tensor_fp16") == (1024 if name == "l40s" else per_clock)


# Dense FLOP/s of 16-bit tensor cores as the vendors print them.
PRINTED = {
    "a100": 312e12, "a100_40": 312e12, "b200": 2.25e15, "h100": 989.4e12, "h100_pcie": 756e12,
    "h200": 989.4e12, "l40s": 366e12, "mi300x": 1307.4e12, "rtx4090": 165.2e12, "rtx5090": 209.5e12,
}  # fmt: skip


@pytest.mark.parametrize("name", machines())
def test_peaks_are_those_that_are_printed(name: str) -> None:
    assert machine(name).peak("fp16") == pytest.approx(PRINTED[name], rel=2e-3)


def test_a_machine_without_cuda() -> None:
    m = machine("mi300x")
    assert (m.arch, m.cuda, m.capability) == ("gfx942", False, 0)
    assert [p.name for p in m.path("dram", "shared")] == [
        "dram-infinity",
        "infinity-l2",
        "l2-shared",
    ]
    assert m.level("l2").count == 8


def test_paths_and_links() -> None:
    m = machine("h100")
    assert [p.name for p in m.path("nvme", "l2")] == ["nvme-host", "host-dram", "dram-l2"]
    assert m.path("l2", "l2") == ()
    with pytest.raises(InputError, match="no pipes lead from 'l2' to 'dram'"):
        m.path("l2", "dram")
    assert list(m.links("shared")) == [2, 4]
    assert m.links("l2") == {}


def test_a_machine_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (SHIPPED / "a100.toml").read_text()
    own = """
[calibration]
launch = { value = 4.6e-6, unit = "s", source = "measured: an empty kernel" }
"""
    price = 'price = { value = 2.5, unit = "USD/h", source = "the invoice" }'
    text = text.replace("value = 2.039e12", "value = 1.555e12") + own
    file.write_text(text.replace("[chip]", f"{price}\n[chip]"))
    for given in (file, str(file)):
        m = machine(given)
        assert (m.name, m.dram_rate) == ("mine", 1.555e12)
        assert m.price is not None
        assert m.price.value == 2.5
        assert m.calibration["launch"].unit == "s"
        assert {"price", "calibration.launch"} <= dict(m.figures()).keys()


def test_h100_facts() -> None:
    m = machine("h100")
    assert (m.arch, m.capability, m.sms) == ("sm_90", 90, 132)
    assert m.shared_per_block == 227 * 1024
    # the L2-to-SM pipe is balanced at 82 (arXiv 2412.03317, App. B.1)
    assert round(m.peak("fp16") / m.l2_rate) == 82
    # 16 per clock and SM (arXiv 2412.03317, Table 3)
    assert m.special_rate == pytest.approx(16 * 132 * 1.83e9)


def test_machines_are_values() -> None:
    assert machine("h100") == machine("h100")
    assert len({machine("h100"), machine("h100"), machine("h200")}) == 2


def refusal(name_or_path: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        machine(name_or_path)
    return str(caught.value)


def test_an_unknown_name() -> None:
    own = "(a machine of your own is a path that ends in .toml)"
    assert refusal("h10") == f"unknown machine 'h10'; did you mean 'h100'? {own}"
    known = "known: " + ", ".join(SHIPPED_NAMES)
    assert refusal("abacus") == f"unknown machine 'abacus'; {known} {own}"
    assert refusal("") == f"unknown machine ''; {known} {own}"
    assert refusal("../machines/h100") == f"unknown machine '../machines/h100'; {known} {own}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert refusal(file) == f"{file}: cannot read the machine file: No such file or directory"
    file.mkdir()
    assert refusal(file) == f"{file}: cannot read the machine file: Is a directory"


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "mine"\narch =\n')
    assert refusal(file) == f"{file}: not a TOML file: Invalid value (at line 2, column 7)"
    file.write_bytes(b"\xff")
    assert refusal(file).startswith(f"{file}: not a TOML file: 'utf-8' codec can't decode")


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        (
            'arch = "sm_90"',
            'arch = "hopper"',
            'arch = "hopper"',
            "'arch' must be an architecture such as \"sm_90\" or \"gfx942\", not 'hopper'",
        ),
        ('title = "NVIDIA H100 SXM5 (80 GB)"', "", "", "'title' must be a text, not nothing"),
        (
            "[compute]",
            "[computing]",
            "[computing]",
            "unknown key 'computing'; did you mean 'compute'?",
        ),
        (
            "[levels.dram]",
            "[levels.hbm]",
            "",
            "there is no 'levels.dram'; every machine has the levels dram, shared, registers",
        ),
        (
            "tensor_fp16 =",
            "tensr_fp16 =",
            "tensr_fp16 =",
            "unknown key 'compute.tensr_fp16'; known: tensor_DTYPE, fma_DTYPE, special",
        ),
        (
            "special =",
            "fma_fp64 =",
            "[compute]",
            "'compute.special' must be a figure, "
            '{ value = ..., unit = "op/clk/SM", source = "..." }, not nothing',
        ),
        (
            'rate = { value = 3.35e12, unit = "B/s", source = "NVIDIA H100 datasheet (SXM):'
            ' 3.35 TB/s" }',
            "rate = 3.35e12",
            "rate = 3.35e12",
            "'pipes[3].rate' must be a figure, "
            '{ value = ..., unit = "B/s", source = "..." }, not 3350000000000.0',
        ),
        (
            "value = 132,",
            "value = 132.5,",
            "sms =",
            "'chip.sms.value' must be a whole number from 1 to 1,000,000, not 132.5",
        ),
        (
            "value = 132,",
            "value = 1e18,",
            "sms =",
            "'chip.sms.value' must be a whole number from 1 to 1,000,000, not 1e+18",
        ),
        (
            "mma_rows = { value = 64",
            "mma_rows = { value = 0.5",
            "mma_rows =",
            "'granules.mma_rows.value' must be a whole number from 1 to 1,000,000, not 0.5",
        ),
        (
            "granule = { value = 128",
            "granule = { value = 12.5",
            "granule = { value = 12.5",
            "'pipes[4].granule.value' must be a whole number from 1 to 1,000,000, not 12.5",
        ),
        (
            "per_block = { value = 232448",
            "per_block = { value = 233473",
            "per_block = { value = 233473",
            "'levels.shared.per_block.value' must be at most the capacity, 233,472, not 233473.0",
        ),
        (
            "unified = { value = 262144",
            "unified = { value = 1024",
            "unified =",
            "'levels.shared.unified.value' must be at least the capacity, 233,472, not 1024.0",
        ),
        (
            "launch = {",
            "lanch = {",
            "lanch =",
            "unknown key 'calibration.lanch'; did you mean 'launch'?",
        ),
        (
            'launch = { value = 4.6e-6, unit = "s"',
            'launch = { value = 3, unit = "us"',
            "launch =",
            "'calibration.launch.unit' must be \"s\", not 'us'",
        ),
        (
            "value = 132,",
            "value = true,",
            "sms =",
            "'chip.sms.value' must be a positive number, not True",
        ),
        (
            "value = 132,",
            "value = 0,",
            "sms =",
            "'chip.sms.value' must be a positive number, not 0",
        ),
        (
            "value = 3.35e12",
            "value = inf",
            "value = inf",
            "'pipes[3].rate.value' must be a positive number, not inf",
        ),
        (
            'value = 3.35e12, unit = "B/s"',
            'value = 3350, unit = "GB/s"',
            "value = 3350",
            "'pipes[3].rate.unit' must be \"B/s\", not 'GB/s'",
        ),
        (
            'per = "sm"',
            'per = "warp"',
            'per = "warp"',
            "'levels.shared.per' must be \"chip\" or \"sm\", not 'warp'",
        ),
        (
            "chips =",
            'per = "chip"\nchips =',
            "chips =",
            "'levels.peers' has both 'per' and 'chips'; one says how many there are",
        ),
        (
            "chips = { value = 8",
            "chips = { value = 8.5",
            "chips =",
            "'levels.peers.chips.value' must be a whole number from 1 to 1,000,000, not 8.5",
        ),
        (
            "cache = true",
            "cache = 1",
            "cache = 1",
            "'levels.l2.cache' must be true or false, not 1",
        ),
        (
            "capacity = { value = 233472",
            "capcity = { value = 233472",
            "capcity =",
            "unknown key 'levels.shared.capcity'; did you mean 'capacity'?",
        ),
        (
            'to = "l2"',
            'to = "l22"',
            'to = "l22"',
            "'pipes[3].to' must be the name of a level (did you mean 'l2'?), not 'l22'",
        ),
        ('from = "l2"', 'from = "host"', "[[pipes]]", "'pipes' must lead from 'dram' to 'shared'"),
        (
            'from = "peers"',
            'from = "host"',
            '[[pipes]]\nfrom = "host"\nto = "dram"\nrate = { value = 4.5e11',
            "'pipes[2]' is 'pipes[1]' again",
        ),
        (
            'from = "shared"\nto = "registers"',
            'from = "registers"\nto = "registers"',
            '[[pipes]]\nfrom = "registers"\nto = "registers"',
            "'pipes[7].siblings' must be a figure, "
            '{ value = ..., unit = "1", source = "..." }, not nothing',
        ),
        ("[[pipes]]", "[[pipe]]", "[[pipe]]", "unknown key 'pipe'; did you mean 'pipes'?"),
    ],
)
def test_a_malformed_file(tmp_path: Path, old: str, new: str, at: str, message: str) -> None:
    text = (SHIPPED / "h100.toml").read_text()
    assert old in text
    text = text.replace(old, new) if old == "[[pipes]]" else text.replace(old, new, 1)
    file = tmp_path / "mine.toml"
    file.write_text(text)
    line = f":{text[: text.index(at)].count(chr(10)) + 1}" if at else ""
    assert refusal(file) == f"{file}{line}: {message}"


def test_a_figure_without_a_source(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (SHIPPED / "h100.toml").read_text()
    start = text.index(", source", text.index("sms ="))
    file.write_text(text[:start] + text[text.index(" }", start) :])
    assert refusal(file) == f"{file}:7: 'chip.sms.source' must be a text, not nothing"


def test_what_a_machine_has_not() -> None:
    m = machine("a100")
    with pytest.raises(InputError) as caught:
        m.peak("fp8")
    assert str(caught.value) == (
        "machine 'a100' has no peak for dtype 'fp8'; known: tf32, fp16, bf16, int8, fp32"
    )
    with pytest.raises(InputError) as caught:
        m.level("smem")
    assert str(caught.value) == (
        "machine 'a100' has no level 'smem';"
        " known: nvme, host, peers, dram, l2, shared, registers, fragments"
    )
    with pytest.raises(InputError) as caught:
        m.pipe("l2", "registers")
    assert str(caught.value) == (
        "machine 'a100' has no pipe from 'l2' to 'registers';"
        " known: nvme to host, host to dram, peers to dram, dram to l2, l2 to shared,"
        " shared to registers, registers to fragments"
    )


def test_reading_machines_is_light() -> None:
    """The command line lists machines without waiting for a symbolic or numeric library."""
    code = (
        "import sys; from napkin.machine.machines import machine; machine('h100');"
        "print(*{'sympy', 'numpy', 'torch', 'triton', 'networkx'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.mark.parametrize("name", machines())
def test_a_machine_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.toml"
    file.write_text(written(machine(name)))
    assert machine(file) == machine(name)
