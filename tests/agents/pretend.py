"""A pretend GPU: its tensors and generators say `cuda`, compute on the CPU, and do not mix with it.

What a GPU refuses is refused here: operators between its tensors and those of the CPU, generators
of the other kind, numbers that are read without a copy. So is what a GPU only suffers: random
numbers of its global generator, which no state has, and, where it is asked for, everything that
the host waits for.

Code sees devices of the type `cuda`. To PyTorch, which refuses these without a GPU, the tensors are
wrappers on the device `meta`, each with a tensor of the CPU in it.
"""

from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

GPU, _INSIDE, _CPU = torch.device("cuda", 0), torch.device("meta"), torch.device("cpu")
_PADDING = 8  # bytes by which a state of its generators is longer than one of the CPU's
_aten = torch.ops.aten
_COPIES = (_aten._to_copy.default, _aten.copy_.default, _aten._foreach_copy_.default)
_INDEXING = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
_MASKS = (torch.bool, torch.uint8)
_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_CHECKED = (_aten.multinomial.default, _aten._linalg_eigh.default)  # their kernels look for errors
_FROM_DATA = (torch.tensor, torch.as_tensor, Tensor.new_tensor)


class DeviceError(AssertionError):
    """A mistake that a GPU would punish, by an error or by waiting."""


class OnGPU(Tensor):
    """A tensor of the pretend GPU.

    Args:
        real: Its numbers, on the CPU.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    device, is_cuda, is_cpu, is_meta = GPU, True, False, False

    @staticmethod
    def __new__(cls, real):
        kind = {"dtype": real.dtype, "layout": real.layout, "device": _INSIDE}
        places = {"strides": real.stride(), "storage_offset": real.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, real.shape, **kind, **places)
        made.numbers = real
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise DeviceError(f"{function} after the pretend GPU was closed")

    def numpy(self, *, force=False):
        if not force:
            raise DeviceError("numpy() of a tensor on the GPU: copy it by cpu() first")
        return self.detach().cpu().numpy()

    def __array__(self, *args, **kwargs):
        raise DeviceError("NumPy reads a tensor on the GPU: copy it by cpu() first")

    def tolist(self):
        return self.cpu().tolist()

    def data_ptr(self):
        raise DeviceError("data_ptr() is for kernels of the CPU")

    def __deepcopy__(self, memo):
        made = self.detach().clone().requires_grad_(self.requires_grad)
        made.__dict__ |= {k: v for k, v in self.__dict__.items() if k != "numbers"}  # a parameter
        return memo.setdefault(id(self), made)

    def __reduce_ex__(self, protocol):
        return self.numbers.detach().__reduce_ex__(protocol)  # files are read on the CPU

    def __repr__(self):
        return f"OnGPU({self.numbers})"


class Generator(torch._C.Generator):
    """A generator of either kind; both draw the same numbers, but their states differ in length."""

    kinds = {}  # noqa: RUF012 (by the address of its state, which PyTorch passes on)

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu"):
        self.kind = self.kinds[self._cdata] = torch.device(device).type

    @property
    def device(self):
        return GPU if self.kind == "cuda" else _CPU

    def get_state(self):
        padding = torch.zeros(_PADDING if self.kind == "cuda" else 0, dtype=torch.uint8)
        return torch.cat([super().get_state(), padding])

    def set_state(self, state):
        if isinstance(state, OnGPU) or state.shape != self.get_state().shape:
            raise DeviceError(f"a state of another kind for a generator of {self.kind}")
        return super().set_state(state[: -_PADDING or None] if self.kind == "cuda" else state)


class _Devices(TorchFunctionMode):
    """Lets code name the device `cuda`."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.device:
            return function(*args, **kwargs)
        if function in _FROM_DATA:  # of which PyTorch would make tensors without numbers
            first, device = args[0], kwargs.pop("device", None)
            if function is Tensor.new_tensor:
                function, args = torch.tensor, args[1:]
                kwargs.setdefault("dtype", first.dtype)
            device = first.device if device is None and isinstance(first, Tensor) else device
            return function(*args, **kwargs).to(_inside(device or _CPU))
        kwargs = {name: _inside(value) for name, value in kwargs.items()}
        return function(*map(_inside, args), **kwargs)


def _inside(value):
    if isinstance(value, torch.device):
        return _INSIDE if value.type == "cuda" else value
    return _INSIDE if isinstance(value, str) and value.startswith("cuda") else value


class PretendGPU(TorchDispatchMode):
    """Runs operators, and refuses what a GPU would."""

    def __init__(self):
        super().__init__()
        self._copies = None  # to the CPU that are still allowed; None for any

    @contextmanager
    def busy(self, copies=0):
        """Within the context the host waits for so many copies to it, and for nothing else."""
        self._copies = copies
        try:
            yield
            assert not self._copies, f"{self._copies} of {copies} copies to the CPU did not happen"
        finally:
            self._copies = None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, device = list(_leaves((*args, *kwargs.values()))), kwargs.get("device")
        ours = _on_gpu(leaves)
        here = ours if device is None else device.type == _INSIDE.type
        if function in _COPIES:
            self._check_copy(function, args, kwargs, here)
        elif ours:
            _check_mixture(function, leaves, args[0])
            self._check_reads(function, args)
        if torch.Tag.nondeterministic_seeded in function.tags:
            _check_generator(function, leaves, "cuda" if here else "cpu")
        options = {name: _mapped(OnGPU, _numbers, value) for name, value in kwargs.items()}
        options |= {} if device is None else {"device": _CPU}
        out = function(*_mapped(OnGPU, _numbers, args), **options)
        if not here:
            return out
        out = _mapped(Tensor, OnGPU, out)
        return return_and_correct_aliasing(function, args, kwargs, out)

    def _check_copy(self, function, args, kwargs, here):
        """Copies are how tensors change the device; only those to the GPU need not block."""
        converts = function is _aten._to_copy.default
        source = _on_gpu(args[0] if converts else args[1])
        target = here if converts else _on_gpu(args[0])
        blocks = not (kwargs.get("non_blocking") or True in args[2:])
        if source and not target:
            if not blocks:
                raise DeviceError(f"{function} to the CPU is non_blocking: its numbers come later")
            self._wait(f"{function} copies to the CPU", copy=True)
        elif target and not source and blocks:
            self._wait(f"{function} copies from the CPU and is not non_blocking")

    def _check_reads(self, function, args):
        if function in _INDEXING:
            if any(each is not None and each.dtype in _MASKS for each in args[1]):
                self._wait(f"{function} by a mask, whose count the host must know")
        elif _READS & set(function.tags) or function in _CHECKED:
            self._wait(f"{function} reads numbers of a tensor")

    def _wait(self, why, *, copy=False):
        if self._copies is None:
            return
        if not copy or not self._copies:
            raise DeviceError(f"the host waits for the GPU: {why}")
        self._copies -= 1


def _check_mixture(function, leaves, first):
    """Tensors without dimensions may be the CPU's where they are but numbers for each element."""
    changed = function._schema.is_mutable and not _on_gpu(first)
    numbers = torch.Tag.pointwise in function.tags and not changed
    for each in leaves:
        if isinstance(each, Tensor) and not isinstance(each, OnGPU) and (each.ndim or not numbers):
            what = f"{each.dtype} {list(each.shape)}"
            raise DeviceError(f"{function} has tensors of the GPU and one of the CPU: {what}")


def _check_generator(function, leaves, kind):
    given = [each for each in leaves if isinstance(each, torch._C.Generator)]
    if kind == "cuda" and not given:
        raise DeviceError(f"{function} draws from the GPU's global generator")
    for each in given:
        if (other := Generator.kinds.get(each._cdata, "cpu")) != kind:
            raise DeviceError(f"{function} on {kind} draws from a generator of {other}")


def _leaves(value):
    """What is in lists and tuples, however deep; PyTorch's pytrees take three times as long."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _mapped(kind, change, value):
    if isinstance(value, list | tuple):
        return type(value)([_mapped(kind, change, each) for each in value])
    return change(value) if isinstance(value, kind) else value


def _numbers(tensor):
    return tensor.numbers


def _on_gpu(value):
    return any(isinstance(each, OnGPU) for each in _leaves(value))


def on_cpu(value):
    """Copies of all tensors, however deep, on the CPU: what a file of them would have in it."""
    copies = tree_map_only(OnGPU, _numbers, value)
    return tree_map_only(Tensor, lambda each: each.detach().clone(), copies)


@contextmanager
def pretend_gpu():
    """Within the context there is a pretend GPU, which is returned."""
    group = torch._C._group_tensors_by_device_and_dtype

    def grouped(*args):
        return {(GPU if d == _INSIDE else d, t): v for (d, t), v in group(*args).items()}

    with ExitStack() as stack:
        for owner, name, value in (
            (torch, "Generator", Generator),
            (Generator, "kinds", {}),
            (torch._C, "_group_tensors_by_device_and_dtype", grouped),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(_Devices())
        yield stack.enter_context(PretendGPU())
