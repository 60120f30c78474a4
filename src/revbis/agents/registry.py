"""The agents by name, and the methods that users type. Imports no torch.

A method names an agent and, for DrQ-v2, an objective; only `resolve` interprets the name.
Adding an agent is one line of `_SHIPPED`. An agent of the user's own is a method too: `agent:` and
its factory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from revbis.agents.presets import (
    dreamerv3_presets,
    drqv2_presets,
    mrq_presets,
    taco_presets,
    tdmpc_presets,
)
from revbis.agents.settings import (
    OF_OBJECTIVE,
    DreamerV3Settings,
    DrQV2Settings,
    MRQSettings,
    OwnSettings,
    TacoSettings,
    TDMPCSettings,
)
from revbis.io.plugins import FORM, is_factory_name, load_factory
from revbis.objectives.registry import OBJECTIVES, accepted_options, check_name, needs_one_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from revbis.agents.base import Agent
    from revbis.agents.settings import AgentSettings


@dataclass(frozen=True)
class AgentEntry:
    """An entry of the registry.

    Attributes:
        name: Name of the agent.
        settings: The class of its settings.
        builder: "module:function" that builds it; imported on first use, with torch.
        description: What it is, in a few words.
        objectives: Whether it accepts an objective, in a field `objective` of its settings.
        of_objective: The settings that have no effect without an objective; by name, the option of
            the objective that they need, or None if any objective will do.
        presets: By preset, task and observation (pixels or state), the settings that differ for
            this agent, each as value and source; None if none does.
        requires: A module outside the core that it needs, and the extra of revbis that installs it.
        acting: "module:function" that returns its `InferenceState`; None if it cannot be
            exported.
        discrete: Whether it can choose among discrete actions; it is then built with discrete=True
            where a task has them, acts with vectors whose largest number is the choice, and learns
            from such vectors.
    """

    name: str
    settings: type[AgentSettings]
    builder: str
    description: str = ""
    objectives: bool = False
    of_objective: Mapping[str, str | None] = field(default_factory=dict)
    presets: Callable[[str, str, str], Mapping[str, tuple[Any, str]]] | None = None
    requires: tuple[str, str] | None = None
    acting: str | None = None
    discrete: bool = False

    @property
    def flags(self) -> frozenset[str]:
        """Names of the settings that users set; the objective follows from the method."""
        return frozenset(each.name for each in fields(self.settings)) - {"objective"}


class Method(NamedTuple):
    """What a method's name stands for.

    Attributes:
        agent: An agent of the registry.
        objective: Name of the objective; None without one.
    """

    agent: AgentEntry
    objective: str | None

    @property
    def defaults(self) -> dict[str, Any]:
        """Settings whose defaults differ from the agent's, because the objective requires it."""
        one_step = self.objective is not None and needs_one_step(self.objective)
        return {"transition": "one_step"} if one_step else {}

    @property
    def flags(self) -> frozenset[str]:
        """Names of the agent's settings that have an effect for this method."""
        return self.agent.flags - self.without.keys()

    @property
    def without(self) -> dict[str, str]:
        """The agent's other settings, and what they need that this method does not have."""
        of, objective = self.agent.of_objective, self.objective
        if objective is None:
            return dict.fromkeys(of, "objective")
        options = accepted_options(objective)
        known = objective in OBJECTIVES  # of a user's own, the options are not
        return {k: v for k, v in of.items() if known and v is not None and v not in options}

    def settings(self, **values: Any) -> AgentSettings:
        """The agent's settings with these values.

        Raises:
            ValueError: For values of the wrong type or out of range.
        """
        if self.agent.objectives:
            values["objective"] = self.objective
        return self.agent.settings(**self.defaults | values)

    @property
    def factory(self) -> str | None:
        """The user's own function that the name contains, of an agent or of an objective."""
        if self.agent.name.startswith(OWN):
            return self.agent.builder
        return self.objective if is_factory_name(self.objective) else None


OWN = "agent:"  # stands before the factory of a user's own agent


def _shipped(
    kind: str, settings: type[AgentSettings], text: str, *, exported: bool = True, **more: Any
) -> AgentEntry:
    """The entry of an agent of this package: the class `kind` in the module of the same name."""
    name, module = kind.lower(), f"revbis.agents.{kind.lower()}"
    acting = f"{module}:acting" if exported else None
    return AgentEntry(name, settings, f"{module}:{kind}", text, acting=acting, **more)


_OBJECTIVES: dict[str, Any] = {"objectives": True, "of_objective": OF_OBJECTIVE}
_PLAIN = "DrQ-v2, without an objective"
_DRQV2 = _shipped("DrQV2", DrQV2Settings, _PLAIN, presets=drqv2_presets, **_OBJECTIVES)
_TACO = "TACO: DrQ-v2 with action tokens and contrastive losses"
_TDMPC = "TD-MPC: planning in a learned latent space"
_MRQ = "MR.Q: values and policy read a model's embedding"
_DREAMERV3 = "Dreamer-v3 by sheeprl; needs revbis[dreamer]"
_SHEEPRL: dict[str, Any] = {"requires": ("sheeprl", "dreamer"), "exported": False}
_SHIPPED = (
    _DRQV2,
    _shipped("Taco", TacoSettings, _TACO, presets=taco_presets),
    _shipped("TDMPC", TDMPCSettings, _TDMPC, presets=tdmpc_presets),
    _shipped("MRQ", MRQSettings, _MRQ, presets=mrq_presets, discrete=True),
    _shipped("DreamerV3", DreamerV3Settings, _DREAMERV3, presets=dreamerv3_presets, **_SHEEPRL),
)
_OWN = AgentEntry(f"{OWN}{FORM}", OwnSettings, FORM, f"your own (--agent {FORM})")
_AGENTS = {entry.name: entry for entry in _SHIPPED}


def register(entry: AgentEntry) -> None:
    """Adds an agent; its name becomes a method.

    Raises:
        ValueError: If the name is already in use.
    """
    if entry.name in methods():
        raise ValueError(f"the method {entry.name!r} exists already; choose another name")
    _AGENTS[entry.name] = entry


def unregister(name: str) -> None:
    """Removes an agent from the registry."""
    del _AGENTS[name]


def agents() -> tuple[AgentEntry, ...]:
    """Every agent; the last entry stands for users' own."""
    return (*_AGENTS.values(), _OWN)


def methods() -> tuple[str, ...]:
    """Every method by name."""
    return (*_AGENTS, *OBJECTIVES)


def resolve(method: str) -> Method:
    """The agent and the objective of a method; nothing of the user's own is imported.

    Raises:
        ValueError: For an unknown name; lists the known ones.
    """
    if isinstance(method, str) and method in _AGENTS:
        return Method(_AGENTS[method], None)
    if isinstance(method, str) and method.startswith(OWN):
        factory = method.removeprefix(OWN)
        if not is_factory_name(factory):
            raise ValueError(f"an agent of your own must be {_OWN.name}, got {method!r:.80}")
        return Method(replace(_OWN, name=method, builder=factory), None)
    return Method(_DRQV2, check_name(method, "method", also=(*_AGENTS, _OWN.name)))


def make_agent(
    method: str,
    settings: AgentSettings,
    observation_shape: Sequence[int],
    action_size: int,
    *,
    seed: int,
    device: str = "cpu",
    discrete: bool = False,
) -> Agent:
    """Builds the agent of a method.

    Args:
        method: Name of the method.
        settings: Settings, of the agent's own class.
        observation_shape: (C, H, W) of stacked frames of uint8, or (D,) of float32 vectors.
        action_size: Dimension of an action, or the number of discrete ones.
        seed: Seed of everything random in the agent.
        device: Device of its networks.
        discrete: Whether actions are a choice, as of `TaskEnv.discrete`.

    Raises:
        ValueError: For sizes that do not match; for discrete actions and an agent that has none;
            for an agent of the user's own that does not work, with what is wrong.
    """
    shape, entry = tuple(observation_shape), resolve(method).agent
    if discrete and not entry.discrete:
        able = [each.name for each in agents() if each.discrete]
        raise ValueError(
            f"{method} needs continuous actions, but the task's are a choice of {action_size}: use "
            f"--method {' or '.join(able)}"
        )
    if entry.name.startswith(OWN):
        from revbis.agents.plugins import load_plugin

        return load_plugin(entry.builder, shape, action_size, settings, seed=seed, device=device)
    build: Callable[..., Agent] = load_factory(entry.builder)
    choice = {"discrete": True} if discrete else {}
    return build(shape, action_size, settings, seed=seed, device=device, **choice)
