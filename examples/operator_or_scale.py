"""SimSR and its revised form with weights and scale of the other: is it the operator, or the scale?

SimSR's targets are |Δr| + γ d', up to 1/(1 − γ) reward gaps; the revised ones (1−c) |Δr| + c d', at
most one. A running scale divides the gaps so that the targets' mean is about ½ in either form.

cd examples && revbis offline --replay RUN --methods simsr simsr-rev --objective \
    operator_or_scale:simsr_convex operator_or_scale:simsr_scaled operator_or_scale:no_c_scaled
"""

from revbis.objectives import Objective, make_objective


def simsr_convex(latent_dim: int, action_dim: int) -> Objective:
    """SimSR with weights (1 − γ, γ): its operator, and the revised form's scale."""
    return make_objective("simsr-rev-no-sa", latent_dim, action_dim, coefficient="discount")


def simsr_scaled(latent_dim: int, action_dim: int) -> Objective:
    """SimSR with reward gaps divided by a running scale."""
    return make_objective("simsr", latent_dim, action_dim, reward_scale="running")


def no_c_scaled(latent_dim: int, action_dim: int) -> Objective:
    """The revised SimSR with weights (1, γ), and reward gaps divided by a running scale."""
    return make_objective("simsr-rev-no-c", latent_dim, action_dim, reward_scale="running")
