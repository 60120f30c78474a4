"""Draws docs/gradient-flow.svg from gradients measured on a real batch.

Run it as `python docs/draw_gradient_flow.py`; a test checks that the committed picture shows what
is measured.
"""

from __future__ import annotations

from pathlib import Path

import torch

from revbis.objectives import OBJECTIVES, make_objective

LOSSES = ("representation_loss", "coefficient_loss")
PARTS = {
    "phi": ("φ(s), the encoder", "through z"),
    "head": ("ψ, the state-action encoder", "(the dynamics, for dbc)"),
    "raw_c": ("raw_c, the coefficient", "softmax gives (1−c, c)"),
    "next": ("φ̄(s'), the next embedding", "through next_z"),
}
COLOURS = {"representation_loss": "#0072B2", "coefficient_loss": "#D55E00"}


def measured_flow() -> set[tuple[str, str]]:
    """(loss, part) for every part that a loss's gradient reaches, over all objectives."""
    flow = set()
    for name in OBJECTIVES:
        torch.manual_seed(0)
        objective = make_objective(name, 8, 2, hidden=16)
        z, next_z = torch.randn(2, 6, 8).requires_grad_().unbind()
        z.retain_grad()
        next_z.retain_grad()
        actions = {name: torch.rand(6, 2) for name in objective.policy_actions}
        discount = torch.full((6,), 0.99)
        out = objective(z, torch.rand(6, 2), torch.rand(6), discount, next_z, **actions)
        parts = {
            "phi": [z],
            "head": list(objective.representation_parameters()),
            "raw_c": list(objective.coefficient_parameters()),
            "next": [next_z],
        }
        for loss_name, loss in out.losses.items():
            for tensors in parts.values():
                for tensor in tensors:
                    tensor.grad = None
            loss.backward(retain_graph=True)
            for part, tensors in parts.items():
                if any(t.grad is not None and t.grad.abs().sum() > 0 for t in tensors):
                    flow.add((loss_name, part))
    return flow


def svg(flow: set[tuple[str, str]]) -> str:
    """The picture: parts on the left, losses on the right, an arrow for each gradient."""
    part_y = {part: 40 + 80 * i for i, part in enumerate(PARTS)}
    loss_y = {"representation_loss": 80, "coefficient_loss": 200}
    rows = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 350" font-family="sans-serif">',
        '<rect width="720" height="350" fill="white"/>',
        "<defs>",
        *(
            f'<marker id="tip-{loss}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            'markerHeight="8" orient="auto">'
            f'<path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
            for loss, colour in COLOURS.items()
        ),
        "</defs>",
    ]
    for loss, part in sorted(flow):
        rows.append(
            f'<line id="{loss}-to-{part}" x1="490" y1="{loss_y[loss] + 25}" x2="262" '
            f'y2="{part_y[part] + 25}" stroke="{COLOURS[loss]}" stroke-width="2.5" '
            f'marker-end="url(#tip-{loss})"/>'
        )
    for part, (title, detail) in PARTS.items():
        reached = any(p == part for _, p in flow)
        dash = "" if reached else ' stroke-dasharray="5 4"'
        note = detail if reached else "no gradient reaches it"
        rows += _box(20, part_y[part], 240, title, note, "#444", dash)
    for loss, y in loss_y.items():
        detail = (
            "Huber(prediction, [target])" if loss == LOSSES[0] else "Huber([prediction], target)"
        )
        rows += _box(490, y, 210, loss, detail, COLOURS[loss], "")
    caption = "An arrow is a gradient. [x] is x without gradient."
    rows += [f'<text x="300" y="310" font-size="12" fill="#333">{caption}</text>', "</svg>"]
    return "\n".join(rows) + "\n"


def _box(x: int, y: int, width: int, title: str, note: str, colour: str, dash: str) -> list[str]:
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="50" rx="8" fill="#f7f7f7" '
        f'stroke="{colour}" stroke-width="2"{dash}/>',
        f'<text x="{x + 12}" y="{y + 21}" font-size="14">{title}</text>',
        f'<text x="{x + 12}" y="{y + 39}" font-size="12" fill="#555">{note}</text>',
    ]


if __name__ == "__main__":
    Path(__file__).with_name("gradient-flow.svg").write_text(svg(measured_flow()))
