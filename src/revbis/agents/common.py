"""What agents share: Adam, linear layers and readouts, pixels to numbers, generators, inputs."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.optim.adam import adam

from revbis.agents.settings import AgentSettings
from revbis.io import schema
from revbis.io.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from revbis.replay import Batch

_FUSED = ("cpu", "cuda")  # devices with a fused Adam


@contextmanager
def descent(optimisers: Mapping[str, Adam], *names: str) -> Iterator[None]:
    """One step of each named optimiser that exists, by the gradients made within."""
    chosen = [optimisers[name] for name in names if name in optimisers]
    for optimiser in chosen:
        optimiser.zero_grad()
    yield
    for optimiser in chosen:
        optimiser.step()


class Group(TypedDict):
    """Parameters with their learning rate."""

    params: Sequence[Tensor]
    lr: float


class Adam:
    """Adam with PyTorch's defaults: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸.

    Args:
        groups: What it trains; all on one device.
        weight_decay: AdamW's: each step first shrinks parameters by rate · weight_decay.
    """

    def __init__(self, groups: Sequence[Group], weight_decay: float = 0.0) -> None:
        self.param_groups, self._weight_decay = list(groups), weight_decay
        self._parameters = [each for group in self.param_groups for each in group["params"]]
        self._moments: dict[Tensor, dict[str, Tensor]] = {}
        self._device = self._parameters[0].device

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            trained = [each for each in group["params"] if each.grad is not None]
            moments = [self._moments_of(each) for each in trained]
            adam(
                trained,
                [each.grad for each in trained if each.grad is not None],
                [each["exp_avg"] for each in moments],
                [each["exp_avg_sq"] for each in moments],
                [],
                [each["step"] for each in moments],
                fused=self._fused,
                capturable=self._device.type == "cuda",
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group["lr"],
                weight_decay=self._weight_decay,
                decoupled_weight_decay=self._weight_decay > 0,
                eps=1e-8,
                maximize=False,
            )

    @property
    def _fused(self) -> bool:
        return self._device.type in _FUSED

    def _moments_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter not in self._moments:
            self._moments[parameter] = self._none_yet(parameter)
        return self._moments[parameter]

    def _none_yet(self, parameter: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), device=self._device if self._fused else "cpu"),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }

    def state_dict(self) -> dict[str, Any]:
        """The moments by the number of their parameter."""
        numbered = enumerate(self._parameters)
        return {"state": {n: self._moments[p] for n, p in numbered if p in self._moments}}

    def load(self, moments: dict[int, dict[str, Tensor]]) -> None:
        """Loads moments; the learning rates stay, which come from the settings.

        Raises:
            ValueError: If their shapes are not those of the parameters.
        """
        loaded = {}
        for number, given in moments.items():
            parameter = self._parameters[number]
            own = loaded[parameter] = self._none_yet(parameter)
            shapes = {name: tensor.shape for name, tensor in given.items()}
            if shapes != {name: tensor.shape for name, tensor in own.items()}:
                raise ValueError(f"the moments of parameter {number} have shapes {shapes}")
            for name, tensor in own.items():
                tensor.copy_(given[name])
        self._moments = loaded


def _find_onednn() -> Any:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if operator is None else operator.default


_ONEDNN = _find_onednn()
_WIDE = 4096  # inputs from which oneDNN is not slower than MKL


class Linear(nn.Linear):
    """A linear layer, optionally followed by ReLU; orthogonal weights, zero biases."""

    def __init__(
        self, inputs: int, outputs: int, activation: Literal["none", "relu"] = "none"
    ) -> None:
        super().__init__(inputs, outputs)
        self.activation = activation
        nn.init.orthogonal_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] → [B, outputs]."""
        y = functional.linear(x, self.weight, self.bias)
        return functional.relu(y, inplace=True) if self.activation == "relu" else y


def convolution(inputs: int, outputs: int, stride: int, kernel: int = 3) -> nn.Conv2d:
    """A convolution with orthogonal weights for the ReLU that follows it, and zero biases."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=kernel, stride=stride, bias=True)
    nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


class Readouts(nn.Module):
    """Several linear layers that read the same wide features, as rows of one matrix.

    Features of 84×84 images have 39,200 numbers, and reading them costs more than the arithmetic
    of 50 outputs. Adjacent layers in the matrix read them together, in the forward and in the
    backward pass; each is still a separate parameter and can have its own optimiser.

    Args:
        inputs: Width of the features.
        widths: Width of each layer by name, in the order of their rows.
        device: Device of the matrix; it cannot be moved later.
    """

    def __init__(self, inputs: int, widths: Mapping[str, int], device: torch.device) -> None:
        super().__init__()
        total = sum(widths.values())
        self._matrix = torch.zeros(total, inputs, device=device)
        self._bias = torch.zeros(total, device=device)
        self._rows: dict[str, slice] = {}
        self.weights, self.biases = nn.ParameterDict(), nn.ParameterDict()
        start = 0
        for name, width in widths.items():
            rows = self._rows[name] = slice(start, start + width)
            start = rows.stop
            # Parameters made of slices share the matrix's memory: optimisers write into it.
            self.weights[name] = nn.Parameter(self._matrix[rows])
            self.biases[name] = nn.Parameter(self._bias[rows])

    @torch.no_grad()
    def init_orthogonal(self, *names: str) -> None:
        """Draws orthogonal weights for the named layers, which are 0 until then."""
        for name in names:
            weight = self.weights[name]
            weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape)))

    def forward(self, features: Tensor, *names: str) -> tuple[Tensor, ...]:
        """The outputs of the named layers, [B, inputs] → [B, width] each.

        Names must be in the order of their rows, without gaps.
        """
        weights = [self.weights[name] for name in names]
        biases = [self.biases[name] for name in names]
        if not _fast(features):
            return tuple(map(functional.linear, (features,) * len(names), weights, biases))
        rows = [self._rows[name] for name in names]
        assert all(a.stop == b.start for a, b in pairwise(rows)), names
        block = slice(rows[0].start, rows[-1].stop)
        matrix, bias = self._matrix[block], self._bias[block]
        assert weights[0].data_ptr() == matrix.data_ptr(), "readouts cannot be deep-copied"
        together: Tensor = _Stacked.apply(features, matrix, bias, *weights, *biases)  # type: ignore[no-untyped-call]
        return torch.split(together, [len(weight) for weight in weights], dim=1)

    def of(self, name: str) -> list[nn.Parameter]:
        """Weight and bias of one layer."""
        return [self.weights[name], self.biases[name]]

    def _apply(self, fn: object, recurse: bool = True) -> Readouts:  # noqa: ARG002
        raise RuntimeError("readouts cannot be moved or cast: create them on their device")


def _fast(x: Tensor) -> bool:
    return (
        _ONEDNN is not None
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.shape[1] >= _WIDE
        and not torch.compiler.is_compiling()
    )


def _times_transposed(x: Tensor, y: Tensor) -> Tensor:
    """The product x yᵀ; y may itself be a transposed view, which is not copied."""
    product: Tensor = _ONEDNN(x, y, None, "none", [], "")
    return product


class _Stacked(torch.autograd.Function):
    """An affine map whose matrix and bias are stacks of parameters.

    `matrix` and `bias` are what the parameters (first all weights, then all biases) look like in
    memory; gradients go to the parameters.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor, *parameters: Tensor) -> Tensor:
        weights = parameters[: len(parameters) // 2]
        y: Tensor = _ONEDNN(x, matrix, bias, "none", [], "")
        ctx.matrix = matrix
        # The weights are saved so that PyTorch notices if they change before the backward pass.
        ctx.save_for_backward(x, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        for_x = _times_transposed(gradient, ctx.matrix.t()) if ctx.needs_input_grad[0] else None
        for_parameters: list[Tensor | None] = [None] * (2 * len(weights))
        if any(ctx.needs_input_grad[3:]):
            widths = [len(weight) for weight in weights]
            for_weights = _times_transposed(gradient.t(), x.t())
            for_biases = gradient.sum(dim=0)
            for_parameters = [*torch.split(for_weights, widths), *torch.split(for_biases, widths)]
        return for_x, None, None, *for_parameters


def restore(generator: torch.Generator, state: Tensor) -> None:
    """Sets a generator to a state that `get_state` returned, of this or another kind of device.

    The state of another kind (CPU, CUDA, ...) has another length and does not fit. Then its digest
    seeds the generator: the random numbers are not those that would have followed, but the same
    ones each time.
    """
    state = state.cpu()
    if state.dtype != torch.uint8 or state.shape == generator.get_state().shape:
        generator.set_state(state)  # refuses what is no state
        return
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=8).digest()
    generator.manual_seed(int.from_bytes(digest))


def scaled_pixels(images: Tensor, dtype: torch.dtype) -> Tensor:
    """pixels/255 − ½, uint8 [B, C, H, W] → the same shape, channels last.

    Args:
        images: The images.
        dtype: float32 or bfloat16, which is rounded from float32.
    """
    if images.device.type != "cpu" or torch.compiler.is_compiling():
        return _scaled(images.to(torch.float32, memory_format=torch.channels_last)).to(dtype)
    batch, channels, height, width = images.shape
    bits = torch.int32 if dtype == torch.float32 else torch.int16  # NumPy has no bfloat16
    out = torch.empty(batch, height, width, channels, dtype=bits)
    table = _TABLE.to(dtype).view(bits)
    planes = images.contiguous().flatten(2)
    _look_up(planes.numpy(), table.numpy(), out.flatten(1, 2).numpy())
    return out.view(dtype).permute(0, 3, 1, 2)


def _scaled(x: Tensor) -> Tensor:
    return x.div_(255).sub_(0.5)


_TABLE = _scaled(torch.arange(256, dtype=torch.float32))


@compiled
def _look_up(planes: NDArray[Any], table: NDArray[Any], out: NDArray[Any]) -> None:
    """Entries of the table, channels last; three times as fast as PyTorch's conversion.

    Args:
        planes: Indices, uint8 [B, C, N].
        table: [256].
        out: Where the entries go, [B, N, C].
    """
    batch, channels, size = planes.shape
    for b in range(batch):
        for i in range(size):
            for c in range(channels):
                out[b, i, c] = table[planes[b, c, i]]


Shape = tuple[int, ...]
S = TypeVar("S", bound=AgentSettings)
N = TypeVar("N", bound=NamedTuple)


def as_shape(value: Any) -> Shape:
    """The shape of images, (C, H, W), or of vectors, (D,)."""
    shape: Shape = schema.convert(value, tuple[schema.Size, ...], "observation_shape")
    if len(shape) not in (1, 3):
        raise ValueError(
            "observation_shape must be (C, H, W) of images or (D,) of vectors, got "
            f"{schema.shown(value)}"
        )
    return shape


def as_settings(value: object, kind: type[S]) -> S:
    """The settings, if they are of the agent's own class."""
    if not isinstance(value, kind):
        raise ValueError(f"settings must be {kind.__name__}, got {value!r:.80}")
    return value


def as_device(value: object) -> torch.device:
    """The device with this name."""
    try:
        if isinstance(value, (str, torch.device)):
            return torch.device(value)
    except RuntimeError:
        pass
    raise ValueError(f"device must be cpu, cuda, cuda:1, mps or similar, got {value!r:.80}")


def observation_type(shape: Shape) -> torch.dtype:
    """The type of observations of this shape: bytes of images, numbers of vectors."""
    return torch.uint8 if len(shape) == 3 else torch.float32


def check_observation(observation: NDArray[Any], shape: Shape) -> None:
    """Refuses an observation whose shape or type is not the agent's."""
    dtype = str(observation_type(shape)).removeprefix("torch.")
    if observation.shape != shape or str(observation.dtype) != dtype:
        got = f"{observation.dtype} of shape {observation.shape}"
        raise ValueError(f"observation must be {dtype} of shape {shape}, got {got}")


def check_observations(observations: Tensor, shape: Shape) -> None:
    """Refuses a batch of observations whose shape or type is not the agent's."""
    check_tensor("observations", observations, (len(observations), *shape), observation_type(shape))


def check_tensor(name: str, tensor: Tensor, shape: Shape, dtype: torch.dtype | None = None) -> None:
    """Refuses a tensor of another shape or type, which could broadcast or be cast unnoticed.

    Args:
        name: What the error calls it.
        tensor: The tensor.
        shape: Its shape.
        dtype: Its type; None for any floats.
    """
    fits = tensor.is_floating_point() if dtype is None else tensor.dtype == dtype
    if tensor.shape != shape or not fits:
        wanted = f"{dtype or 'floats'} {list(shape)}"
        raise ValueError(f"{name} must be {wanted}, got {tensor.dtype} {list(tensor.shape)}")


def check_batch(batch: Batch, shape: Shape, action_size: int, device: torch.device) -> Batch:
    """The batch on the device, if its shapes and types are the agent's."""
    size, one_step, window = len(batch.obs), batch.one_step, batch.window
    observations = {"obs": batch.obs, "next_obs": batch.next_obs}
    columns = {"reward": batch.reward, "discount": batch.discount}
    check_tensor("action", batch.action, (size, action_size))
    if one_step is not None:
        observations["one_step.next_obs"] = one_step.next_obs
        columns |= {"one_step.reward": one_step.reward, "one_step.discount": one_step.discount}
    if window is not None:
        observations["window.obs"] = window.obs
        if window.next_obs is not None:
            observations["window.next_obs"] = window.next_obs
        steps = window.action.shape[1]
        check_tensor("window.action", window.action, (size, steps, action_size))
    for name, tensor in observations.items():
        check_tensor(name, tensor, (size, *shape), observation_type(shape))
    for name, tensor in columns.items():
        check_tensor(name, tensor, (size,))
    return moved(batch, device)


def moved(batch: N, device: torch.device) -> N:
    """A named tuple of tensors, of such tuples and of None, on the device."""
    if device.type == "cpu":
        return batch

    def move(each: Any) -> Any:
        if isinstance(each, Tensor):
            return each.to(device, non_blocking=True)
        return None if each is None else moved(each, device)

    return batch._make(map(move, batch))


def check_state(state: object, **names: str) -> None:
    """Refuses anything but a state with these names in it."""
    if not isinstance(state, dict):
        raise ValueError(f"the state must be a dict, as state_dict returns, got {state!r:.80}")
    for name, expected in names.items():
        value = state.get(name)
        if not isinstance(value, str) or value != expected:
            raise ValueError(f"the state's {name} must be {expected!r}, got {value!r:.80}")


@contextmanager
def fitting() -> Iterator[None]:
    """Refuses a state in one line, however loading it fails."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001 (a foreign state can fail in any way)
        reason = schema.reason(problem)
        raise ValueError(f"the state does not fit this agent: {reason}") from None
