"""The shipped machine files hold together, and a wrong one is refused in words that help."""

import subprocess
import sys
from pathlib import Path

import pytest

from napkin.cost.machines import Machine, machine, machines
from napkin.errors import InputError

SHIPPED = Path(__file__).parents[2] / "napkin" / "machines"


def test_the_shipped_machines() -> None:
    assert machines() == ("a100", "b200", "h100", "h200", "rtx4090")


@pytest.mark.parametrize("name", machines())
def test_every_figure_is_positive_and_has_a_source(name: str) -> None:
    figures = dict(machine(name).figures())
    assert {"chip.sms", "peak.bf16", "levels.shared.per_block", "pipes.dram-l2.rate"} <= set(
        figures
    )
    for key, figure in figures.items():
        assert figure.value > 0, key
        assert figure.source.strip(), key
        assert figure.unit, key


@pytest.mark.parametrize("name", machines())
def test_the_figures_agree_with_one_another(name: str) -> None:
    m = machine(name)
    assert m.shared_per_block == m.shared_per_sm - 1024  # 1 KB per block is the system's
    assert m.threads_per_sm == 32 * m.warps_per_sm
    assert m.registers_per_sm == 4 * 65536
    assert m.registers_per_thread == 4 * 255
    assert [(level.name, level.count) for level in m.levels] == [
        ("dram", 1),
        ("l2", 1),
        ("shared", m.sms),
        ("registers", m.sms),
    ]
    assert m.dram_rate < m.l2_rate < m.pipe("shared", "registers").rate.value
    # 32 banks of 4 bytes per clock and SM
    assert m.pipe("shared", "registers").rate.value == pytest.approx(128 * m.sms * m.clock, 1e-3)
    # a power of two of dense fp16 FLOP per clock and SM
    per_clock = {80: 2048, 89: 512, 90: 4096, 100: 8192}[m.capability]
    assert m.peak("fp16") == pytest.approx(per_clock * m.sms * m.clock, 1e-2)
    assert m.peak("fp16") == m.peak("bf16") >= 2 * m.peak("tf32") >= 2 * m.peak("fp32")


def balance(m: Machine) -> float:
    """Fewest query rows per group at which attention is bound by compute, arXiv 2412.03317 B.1."""
    return m.peak("fp16") * 2 / (2 * m.dram_rate)


@pytest.mark.parametrize(("name", "rows"), [("a100", 153), ("h100", 295), ("h200", 206)])
def test_fewest_query_rows_come_out_of_the_files(name: str, rows: int) -> None:
    assert round(balance(machine(name))) == rows


def test_a_machine_of_the_users_own(tmp_path: Path) -> None:
    """The A100 with 40 GB is the shipped one with the slower memory (1.555 TB/s)."""
    file = tmp_path / "a100-40.toml"
    text = (SHIPPED / "a100.toml").read_text()
    file.write_text(text.replace("value = 2.039e12", "value = 1.555e12"))
    for given in (file, str(file)):
        m = machine(given)
        assert m.name == "a100-40"
        assert round(balance(m)) == 201


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
    known = "known: a100, b200, h100, h200, rtx4090"
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
    ("old", "new", "message"),
    [
        (
            'arch = "sm_90"',
            'arch = "hopper"',
            "'arch' must be a CUDA architecture such as \"sm_90\", not 'hopper'",
        ),
        ('title = "NVIDIA H100 SXM5 (80 GB)"', "", "'title' must be a text, not nothing"),
        ("[peak]", "[peaks]", "unknown key 'peaks'; did you mean 'peak'?"),
        ("[levels.l2]", "[levels.l3]", "'levels.l2' must be a table with entries, not nothing"),
        ("value = 132,", "value = true,", "'chip.sms.value' must be a positive number, not True"),
        ("value = 132,", "value = 0,", "'chip.sms.value' must be a positive number, not 0"),
        (
            "value = 3.35e12",
            "value = inf",
            "'pipes[0].rate.value' must be a positive number, not inf",
        ),
        (
            "value = 3.35e12",
            'value = "fast"',
            "'pipes[0].rate.value' must be a positive number, not 'fast'",
        ),
        (
            'value = 3.35e12, unit = "B/s"',
            'value = 3350, unit = "GB/s"',
            "'pipes[0].rate.unit' must be \"B/s\", not 'GB/s'",
        ),
        (
            'per = "sm"',
            'per = "warp"',
            "'levels.shared.per' must be \"chip\" or \"sm\", not 'warp'",
        ),
        (
            "capacity = { value = 233_472",
            "capcity = { value = 233_472",
            "unknown key 'levels.shared.capcity'; did you mean 'capacity'?",
        ),
        (
            'to = "l2"',
            'to = "l22"',
            "'pipes[0].to' must be the name of a level (did you mean 'l2'?), not 'l22'",
        ),
        ('to = "l2"', 'to = "shared"', "'pipes' needs one from 'dram' to 'l2'"),
        ("[[pipes]]", "[[pipe]]", "unknown key 'pipe'; did you mean 'pipes'?"),
    ],
)
def test_a_malformed_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (SHIPPED / "h100.toml").read_text()
    assert old in text
    file = tmp_path / "mine.toml"
    file.write_text(text.replace(old, new))
    assert refusal(file) == f"{file}: {message}"


def test_a_figure_without_a_source(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (SHIPPED / "h100.toml").read_text()
    start = text.index(", source", text.index("sms ="))
    file.write_text(text[:start] + text[text.index(" }", start) :])
    assert refusal(file) == f"{file}: 'chip.sms.source' must be a text, not nothing"


def test_what_a_machine_has_not() -> None:
    m = machine("a100")
    with pytest.raises(InputError) as caught:
        m.peak("fp8")
    assert str(caught.value) == (
        "machine 'a100' has no peak for dtype 'fp8'; known: fp32, tf32, fp16, bf16, int8"
    )
    with pytest.raises(InputError) as caught:
        m.level("smem")
    assert str(caught.value) == (
        "machine 'a100' has no level 'smem'; known: dram, l2, shared, registers"
    )
    with pytest.raises(InputError) as caught:
        m.pipe("l2", "registers")
    assert str(caught.value) == (
        "machine 'a100' has no pipe from 'l2' to 'registers';"
        " known: dram to l2, l2 to shared, shared to registers"
    )


def test_reading_machines_is_light() -> None:
    """The command line lists machines without waiting for a symbolic or numeric library."""
    code = (
        "import sys; from napkin.cost.machines import machine; machine('h100');"
        "print(*{'sympy', 'numpy', 'torch', 'triton', 'networkx'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
