"""Some hundred bad inputs at every door; `python -m tests.fuzz 10000` tries many more."""

import pytest
import torch
from tests.fuzz.targets import TARGETS, send

torch.set_num_threads(1)
COUNTS = {"run folders": 15, "checkpoints": 20, "command lines": 60}


@pytest.mark.env("gym", gl=False)
@pytest.mark.parametrize("target", TARGETS)
def test_bad_inputs_are_refused_without_a_traceback(target, tmp_path):
    count = COUNTS.get(target, 100)
    refused = sum(send(target, number, tmp_path) for number in range(count))
    assert refused > count // 10  # the inputs are bad indeed
