"""The objectives by name, and the grid of designs. Imports no torch.

An objective's module loads when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from revbis.io import schema
from revbis.io.plugins import FORM, is_factory_name, load_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from revbis.objectives.base import Objective

_DISTANCES = {"mico": "MICo", "simsr": "SimSR", "energy": "energy"}


@dataclass(frozen=True)
class Design:
    """One point of the grid: distance × what is compared × what follows × tie × weights.

    Attributes:
        distance: "mico", "simsr" or "energy".
        state_action: Whether ψ embeds state-action pairs; without it states are compared.
        adaptive: Weights (1−c, c) with c learned; else (1, γ).
        follows: What the target's second term compares: the next "states" by φ, or "pairs" of next
            states and the current policy's actions there by ψ.
        tied: Whether φ's distances are regressed on ψ's under the current policy's actions: the
            equation that the paper's loss leaves out.
        released: The loss of the authors' released code: no gradient through the second member of
            a pair, and the batch's mean reward gap for every pair, whose variance c sees too. Their
            action embedding and initialisation are not reproduced (docs/deviations.md).
        means: Squared reward gaps: less the self-distances, what is left is of expected rewards.
    """

    distance: Literal["mico", "simsr", "energy"]
    state_action: bool
    adaptive: bool
    follows: Literal["states", "pairs"] = "states"
    tied: bool = False
    released: bool = False
    means: bool = False

    @property
    def normalised(self) -> bool:
        """Whether embeddings are scaled to length 1 unless the user says otherwise.

        SimSR's are, and the paper scales MICo's too. On unit vectors MICo's distance lives in
        [1.0014, 1.157] and cannot express its targets, so that the forms that are to reach them
        leave its embeddings as they are. The energy distance needs their length.
        """
        paper = not self.tied and self.follows == "states"
        return self.distance == "simsr" or (self.distance == "mico" and paper)

    @property
    def independent(self) -> bool:
        """Whether an element's pair with itself is left out.

        A sample and itself are not two independent draws: their reward gap is always 0. The
        published methods include such pairs.
        """
        return self.tied or self.follows == "pairs" or self.distance == "energy"

    @property
    def policy_actions(self) -> tuple[str, ...]:
        """The actions of the current policy that a batch must hold."""
        if self.follows == "pairs":
            return ("next_policy_action",)
        return ("policy_action",) if self.tied else ()

    @property
    def description(self) -> str:
        """The design in one short line."""
        if self.means:
            return "energy-rev-full-no-c with squared reward gaps"
        if self.released:
            return f"{self.distance}-rev with the loss of the authors' released code"
        compared = "pairs" if self.state_action else "states"
        weights = "(1−c, c)" if self.adaptive else "(1, γ)"
        name = _DISTANCES[self.distance]
        if self.tied:
            return f"{name}: pairs, and states tied to them, {weights}"
        if self.follows == "pairs":
            return f"{name}: pairs, followed by pairs, {weights}"
        return f"{name} distance between {compared}, weights {weights}"


def _complete(distance: Literal["mico", "simsr", "energy"]) -> dict[str, Design]:
    return {
        f"{distance}-rev-full": Design(distance, True, True, tied=True),
        f"{distance}-rev-full-no-c": Design(distance, True, False, tied=True),
    }


DESIGNS = {
    "mico": Design("mico", state_action=False, adaptive=False),
    "simsr": Design("simsr", state_action=False, adaptive=False),
    "mico-rev": Design("mico", state_action=True, adaptive=True),
    "simsr-rev": Design("simsr", state_action=True, adaptive=True),
    "mico-rev-no-c": Design("mico", state_action=True, adaptive=False),
    "simsr-rev-no-c": Design("simsr", state_action=True, adaptive=False),
    "mico-rev-no-sa": Design("mico", state_action=False, adaptive=True),
    "simsr-rev-no-sa": Design("simsr", state_action=False, adaptive=True),
    "mico-rev-released": Design("mico", state_action=True, adaptive=True, released=True),
    **_complete("mico"),
    **_complete("simsr"),
    "energy": Design("energy", state_action=False, adaptive=False),
    **_complete("energy"),
    "means-pairs": Design("energy", True, False, tied=True, means=True),
    "mico-rev-pairs": Design("mico", state_action=True, adaptive=True, follows="pairs"),
    "simsr-rev-pairs": Design("simsr", state_action=True, adaptive=True, follows="pairs"),
}

_CHOICES = {
    "loss": ("huber", "squared"),
    "pairing": ("all", "permuted"),
    "reward_scale": ("none", "running"),
}
_OPTIONS = ("loss", "normalisation", "hidden", "discrete", "pairing")


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective of the registry.

    Attributes:
        name: What users call it.
        builder: `package.module:factory`, called with (latent_dim, action_dim, **options).
        description: One line for lists.
        options: Names of the options that users may set.
        defaults: Options whose defaults differ from the builder's own, and arguments that users
            do not set.
        one_step: Whether it learns from one-step transitions only, because it models what follows
            one action.
        version: Raised when its numbers change: results that are kept are found by it.
        psi: Whether it trains a state-action encoder, which its owner may pass as `psi`.
    """

    name: str
    builder: str
    description: str
    options: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    one_step: bool = False
    version: int = 1
    psi: bool = False


def _on_the_grid(name: str, design: Design) -> ObjectiveEntry:
    lengths = design.distance == "energy"  # which embeddings of length 1 do not have
    options = [option for option in _OPTIONS if option != "normalisation" or not lengths]
    options += ["beta"] if design.distance == "mico" else []
    options += ["coefficient"] if design.adaptive else []
    options += [] if design.released else ["reward_scale"]
    defaults = {"design": design, "normalisation": design.normalised}
    if design.released:
        defaults |= {"loss": "squared", "pairing": "permuted"}
    if design.tied:
        defaults |= {"reward_scale": "running"}
    builder = "revbis.objectives.bisimulation:BisimulationObjective"
    about = (name, builder, design.description, tuple(options), defaults)
    return ObjectiveEntry(*about, psi=design.state_action)


def _baseline(name: str, description: str, *, rewards: bool) -> ObjectiveEntry:
    builder = "revbis.objectives.prediction:PredictionObjective"
    options = ("loss", "normalisation", "hidden", "discrete")
    about = (name, builder, description, options, {"rewards": rewards})
    return ObjectiveEntry(*about, one_step=True, psi=True)


def _of_windows(name: str, description: str, builder: str, **defaults: Any) -> ObjectiveEntry:
    about = (name, f"revbis.objectives.laws:{builder}", description, ("hidden", "discrete"))
    return ObjectiveEntry(*about, defaults, one_step=True, psi=True)


_ENTRIES = (
    *(_on_the_grid(name, design) for name, design in DESIGNS.items()),
    ObjectiveEntry(
        "dbc",
        "revbis.objectives.dbc:DBCObjective",
        "L1 distance between states, (1, γ), learned dynamics",
        _OPTIONS,
        psi=True,
    ),
    _baseline("zp", "no metric: predicts the next embedding", rewards=False),
    _baseline("deepmdp", "no metric: predicts next embedding and reward", rewards=True),
    _of_windows("laws", "laws of the rewards to come, every horizon", "LawObjective"),
    _of_windows("laws-zp", "laws, and predicts the next embedding", "LawObjective", predict=True),
    _of_windows("means", "laws' ablation: expected rewards", "MeanObjective"),
)
OBJECTIVES = {entry.name: entry for entry in _ENTRIES}


def register(entry: ObjectiveEntry) -> None:
    """Adds an objective to `OBJECTIVES`.

    Raises:
        ValueError: If the name is taken, or the builder is not named as package.module:factory.
    """
    if entry.name in OBJECTIVES:
        raise ValueError(f"there is an objective {entry.name!r} already: choose another name")
    if not is_factory_name(entry.builder):
        raise ValueError(f"builder must be {FORM}, got {entry.builder!r:.80}")
    OBJECTIVES[entry.name] = entry


def unregister(name: str) -> None:
    """Removes an objective from `OBJECTIVES`."""
    del OBJECTIVES[name]


def check_name(name: str, what: str = "objective", also: tuple[str, ...] = ()) -> str:
    """Refuses what is neither a registered name nor a factory's; nothing is imported.

    Args:
        name: A name of `OBJECTIVES`, or package.module:factory.
        what: What the error message calls it.
        also: Names that the error message lists before them.

    Raises:
        ValueError: With the known names.
    """
    known = (*OBJECTIVES, FORM)
    if is_factory_name(name) or (isinstance(name, str) and name in OBJECTIVES):
        return name
    raise ValueError(schema.not_a_choice(name, (*also, *known), what))


def accepted_options(name: str) -> tuple[str, ...]:
    """The options of a registered objective; of a user's own none are known."""
    return OBJECTIVES[name].options if name in OBJECTIVES else ()


def needs_one_step(name: str) -> bool:
    """Whether a registered objective learns from one-step transitions only."""
    return name in OBJECTIVES and OBJECTIVES[name].one_step


def trains_psi(name: str) -> bool | None:
    """Whether an objective trains its owner's state-action encoder; None of a user's own."""
    return OBJECTIVES[name].psi if name in OBJECTIVES else None


def make_objective(
    name: str, latent_dim: int, action_dim: int, *, psi: object = None, **options: object
) -> Objective:
    """An objective by name.

    Args:
        name: One of `OBJECTIVES`: mico, simsr; mico-rev, simsr-rev (the revised metric, ψ and c);
            …-rev-no-c and …-rev-no-sa (without the coefficient, without ψ); …-rev-full (with the
            equation that the paper's loss leaves out); energy, energy-rev-full (a distance that
            can be exact); …-rev-pairs (ROPE's operator); mico-rev-released (the loss of the
            authors' released code, without its action embedding and initialisation); dbc; zp and
            deepmdp (baselines that predict the next embedding, and the reward); laws (laws of the
            rewards to come, from which distances of any horizon are read), laws-zp (and predicts
            the next embedding), means and means-pairs (expected rewards instead). Or your own as
            package.module:factory, a function that is called with (latent_dim, action_dim,
            **options).
        latent_dim: Width of the embeddings.
        action_dim: Width of the actions, or the number of discrete ones.
        psi: Your own state-action encoder, a module psi(z, action) → [B, latent_dim], for the
            objectives that train one; its parameters stay yours. A factory of your own gets it if
            it has such an argument.
        **options: discrete (bool: actions may be integers), loss ("huber" | "squared"),
            normalisation (bool), beta (MICo's angle weight), hidden (width of the head), pairing
            ("all" | "permuted"), coefficient ("learned" | "discount" | a number in (0, 1)),
            reward_scale ("none" | "running"); for your own what it accepts.

    Raises:
        ValueError: For unknown names or options, with what is known; for an objective of your own
            that does not work, with what is wrong.
    """
    check_name(name)
    latent_dim = schema.convert(latent_dim, schema.Size, "latent_dim")
    action_dim = schema.convert(action_dim, schema.Size, "action_dim")
    entry = OBJECTIVES.get(name)
    if entry is not None:
        checked = {each: _check_option(entry, each, value) for each, value in options.items()}
        options = {**entry.defaults, **checked}
    builder = name if entry is None else entry.builder
    if psi is not None:
        options |= _owners_psi(name, builder, psi)
    if builder.startswith("revbis."):
        objective: Objective = load_factory(builder)(latent_dim, action_dim, **options)
        return objective
    from revbis.objectives.plugins import load_plugin

    return load_plugin(builder, latent_dim, action_dim, options)


def _owners_psi(name: str, builder: str, psi: object) -> dict[str, object]:
    """The option that passes ψ on; none for a factory that takes none.

    Raises:
        ValueError: For what cannot be called, or an objective without ψ.
    """
    if not callable(psi):
        raise ValueError(f"psi must be a module, psi(z, action), got {psi!r:.80}")
    trained = trains_psi(name)
    if trained is None:
        trained = "psi" in signature(load_factory(builder)).parameters
    elif not trained:
        raise ValueError(f"{name} has no state-action encoder: make it without psi")
    return {"psi": psi} if trained else {}


def _check_option(entry: ObjectiveEntry, option: str, value: Any) -> Any:
    schema.choice(option, entry.options, f"an option of {entry.name}")
    if option in _CHOICES:
        return schema.choice(value, _CHOICES[option], option)
    if option == "beta":
        return schema.positive(value, option)
    if option == "coefficient":
        return value if value in ("learned", "discount") else _fixed_c(value)
    if option == "hidden":
        return schema.convert(value, schema.Size, option)
    return schema.flag(value, option) if option in ("normalisation", "discrete") else value


def _fixed_c(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            f"coefficient must be learned, discount or a number in (0, 1), got {value!r:.80}"
        )
    return float(value)
