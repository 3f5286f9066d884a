"""What a training stores for its backward is compared: a wrong array that is kept is found."""

from __future__ import annotations

import os
import subprocess
import sys

PLANTED = """
import modes

modes.prepared("interpret")
import napkin as nk
import trainings
from judged import COUNTS, Found
from programs import Input, Program, Ref, Step
from written import diagram

trainings.SOME = 1.0  # all is kept that may be
inputs = Input("X", ("a", "b")), Input("W", ("b", "c"))
steps = (
    Step("softmax", (Ref(0),), (("b",),)),
    Step("contract", (Ref(2), Ref(1)), (("b",),)),
    Step("tanh", (Ref(3),)),
)
program = Program(inputs, steps, ((Ref(4), ("a", "c")),), {"a": 5, "b": 7, "c": 3})
made = nk.gradient(diagram(program))
trainings.training(program, made, 5)
assert COUNTS["arrays kept"] > 1, "nothing was kept beside the output"
given = trainings.Trained._given


def spoilt(self, ran, forward):
    kept = {n for n in forward.tensor_of if n not in program_outputs}
    given(self, ran, forward)
    for n in kept & self.inputs.keys():
        data = self.inputs[n].data
        data[...] = data * 0 + 3


program_outputs = {o.name for o in diagram(program).outputs}
trainings.Trained._given = spoilt
try:
    trainings.training(program, made, 5)
except Found as found:
    print(found.failure.category)
else:
    print("nothing found")
"""


def test_a_wrong_array_that_is_kept_is_found() -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", PLANTED], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[0] == "wrong value"
