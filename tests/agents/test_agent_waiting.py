"""An update never makes the host wait for a GPU: it reads no number of a tensor."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from revbis.agents import methods, resolve
from revbis.objectives import base

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten._unique2.default,
}


class NoReads(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function not in READS, f"{function} reads a tensor"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("read", [torch.Tensor.item, bool, torch.nonzero, lambda x: x[x > 0]])
def test_reads_are_noticed(read):
    with pytest.raises(AssertionError, match="reads a tensor"), NoReads():
        read(torch.ones(()))


@pytest.mark.parametrize("mode", ["joint", "alternating", "balanced"])
@pytest.mark.parametrize("method", [m for m in methods() if resolve(m).agent.name == "drqv2"])
def test_an_update_reads_no_tensor(make_agent, make_batch, monkeypatch, method, mode):
    monkeypatch.setattr(base, "_LOOKED_AT", ())  # as on a GPU
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # no kernels of the CPU
    agent = make_agent(method, mode, action_penalty=0.01)
    batch = make_batch()
    agent.learn(batch, 0)  # makes Adam's state
    with NoReads():
        agent.learn(batch, 1)
