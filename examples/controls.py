"""Known objectives with one option changed: what does it that a method does?

`revbis train` has options for these; `revbis offline` and `revbis exactness` take objectives alone.

cd examples && revbis offline --replay RUN --methods simsr-rev --objective controls:half
cd examples && revbis exactness --methods simsr-rev simsr-rev-full --objective controls:scaled
"""

from revbis.objectives import Objective, make_objective


def half(latent_dim: int, action_dim: int) -> Objective:
    """The revised SimSR with c fixed at ½, where learning starts."""
    return make_objective("simsr-rev", latent_dim, action_dim, coefficient=0.5)


def discount(latent_dim: int, action_dim: int) -> Objective:
    """The revised SimSR with c fixed at the discount."""
    return make_objective("simsr-rev", latent_dim, action_dim, coefficient="discount")


def scaled(latent_dim: int, action_dim: int) -> Objective:
    """The revised SimSR with the reward scale of the complete one, but without its tie."""
    return make_objective("simsr-rev", latent_dim, action_dim, reward_scale="running")
