import pytest
import torch
from torch.nn import functional

from revbis.agents.common import scaled_pixels
from revbis.agents.drqv2 import (
    PixelEncoder,
    Policy,
    TwinQ,
    VectorEncoder,
    linear_schedule,
    noisy_action,
)

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("side", "strides", "size"),
    [(84, (2, 1, 1, 1), 32 * 35 * 35), (64, (2, 2, 1, 1), 32 * 11 * 11), (20, (2, 1, 1, 1), 288)],
)
def test_size_of_the_features(side, strides, size):
    assert PixelEncoder((9, side, side), 32, strides).size == size


def test_features_are_the_convolutions_of_scaled_pixels_row_by_row():
    encoder = PixelEncoder((3, 20, 22), 4, (2, 1, 1, 1))
    pixels = torch.randint(0, 256, (5, 3, 20, 22), dtype=torch.uint8)
    kept = pixels.clone()
    x = pixels.double() / 255 - 0.5
    for layer, stride in zip(encoder.convolutions, (2, 1, 1, 1), strict=True):
        weight, bias = layer.weight.double(), layer.bias.double()
        x = functional.conv2d(x, weight, bias, stride=stride).relu()
    expected = torch.stack([x[:, c] for c in range(4)], dim=3).reshape(5, -1)
    torch.testing.assert_close(encoder(pixels), expected.float(), rtol=1e-4, atol=1e-5)
    assert torch.equal(pixels, kept)


@pytest.mark.parametrize("shape", [(5, 3, 20, 22), (1, 9, 7, 7), (0, 3, 4, 4)])
def test_scaled_pixels_are_those_of_plain_arithmetic(shape):
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    images.view(-1)[:256] = torch.arange(min(256, images.numel()), dtype=torch.uint8)
    for dtype in (torch.float32, torch.bfloat16):
        expected = images.float().div(255).sub(0.5).to(dtype)
        scaled = scaled_pixels(images, dtype)
        assert scaled.dtype == dtype and torch.equal(scaled, expected)
        assert scaled.is_contiguous(memory_format=torch.channels_last)
        transposed = images.transpose(2, 3)
        assert torch.equal(scaled_pixels(transposed, dtype), expected.transpose(2, 3))


def test_flattening_copies_nothing():
    encoder = PixelEncoder((3, 20, 20), 4, (2, 1, 1, 1))
    features = encoder(torch.zeros(5, 3, 20, 20, dtype=torch.uint8))
    assert features._is_view() and features.is_contiguous()


def test_convolutions_start_orthogonal_with_relu_gain():
    for layer in PixelEncoder((9, 20, 20), 32, (2, 1, 1, 1)).convolutions:
        flat = layer.weight.detach().flatten(1)
        torch.testing.assert_close(flat @ flat.T, 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
        assert not layer.bias.any()


def test_too_small_images_are_refused():
    with pytest.raises(ValueError, match=r"images of 12x40 are too small .* \(2, 1, 1, 1\)"):
        PixelEncoder((3, 12, 40), 4, (2, 1, 1, 1))


def test_vector_encoder_has_two_hidden_layers_with_relu():
    encoder = VectorEncoder(3, 7)
    x = torch.randn(5, 3)
    first, second = encoder.layers
    hidden = functional.linear(x, first.weight, first.bias).relu()
    expected = functional.linear(hidden, second.weight, second.bias).relu()
    torch.testing.assert_close(encoder(x), expected)
    assert encoder.size == 7


def test_policy_and_values_by_hand():
    policy, critic = Policy(6, 8, 2), TwinQ(6, 8, 2)
    readout, action = torch.randn(5, 6), torch.randn(5, 2)

    def mlp(layers, x):
        for layer in layers[:2]:
            x = functional.linear(x, layer.weight, layer.bias).relu()
        return functional.linear(x, layers[2].weight, layers[2].bias)

    centred = readout - readout.mean(dim=1, keepdim=True)
    trunk = (centred / (readout.var(dim=1, correction=0, keepdim=True) + 1e-5).sqrt()).tanh()
    torch.testing.assert_close(policy(readout), mlp(policy.layers, trunk).tanh())
    x = torch.cat([trunk, action], dim=1)
    q1, q2 = critic(readout, action)
    torch.testing.assert_close(q1, mlp(critic.q1, x)[:, 0])
    torch.testing.assert_close(q2, mlp(critic.q2, x)[:, 0])
    assert not torch.allclose(q1, q2)


def test_noise_has_the_deviation_and_is_clipped():
    generator = torch.Generator().manual_seed(0)
    mean = torch.zeros(20_000, 1)
    noise = noisy_action(mean, 0.2, generator)
    assert noise.std().item() == pytest.approx(0.2, rel=0.03)
    assert noise.abs().max() > 0.6
    clipped = noisy_action(mean, 0.2, generator, clip=0.3)
    assert clipped.abs().max().item() == pytest.approx(0.3)
    assert (clipped.abs() < 0.29).float().mean().item() == pytest.approx(0.853, abs=0.01)


def test_clamped_actions_pass_their_gradient_through():
    generator = torch.Generator().manual_seed(0)
    mean = torch.full((1000, 1), 0.99, requires_grad=True)
    action = noisy_action(mean, 0.5, generator, clip=0.3)
    assert action.max().item() == pytest.approx(1 - 1e-6, abs=1e-7) and action.max() < 1
    low = noisy_action(-mean, 0.5, generator)
    assert low.min().item() == pytest.approx(-1 + 1e-6, abs=1e-7) and low.min() > -1
    action.sum().backward()
    assert torch.equal(mean.grad, torch.ones_like(mean))


def test_noise_comes_from_the_generator():
    mean = torch.zeros(3, 2)
    one, two = (noisy_action(mean, 1.0, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("step", "value"), [(-5, 1.0), (0, 1.0), (50, 0.55), (100, 0.1), (1000, 0.1)]
)
def test_schedule(step, value):
    assert linear_schedule(1.0, 0.1, 100, step) == pytest.approx(value)
