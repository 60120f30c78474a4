"""What agents share: Adam, convolutions, pixels to numbers, generators, inputs."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import torch
from torch import Tensor, nn
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


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Within the context, parameters of the networks get no gradient."""
    for network in networks:
        network.requires_grad_(False)
    try:
        yield
    finally:
        for network in networks:
            network.requires_grad_(True)


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


def convolution(inputs: int, outputs: int, stride: int, kernel: int = 3) -> nn.Conv2d:
    """A convolution with orthogonal weights for the ReLU that follows it, and zero biases."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=kernel, stride=stride, bias=True)
    nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


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
