"""The objectives by name. Imports no torch: an objective's module loads when it is made.

Adding an objective is one file and one line of `OBJECTIVES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from revbis import checks
from revbis.objectives.designs import DESIGNS, Design
from revbis.system.factories import FORM, is_factory_name, load_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from revbis.objectives.protocol import Objective

_WIDEST = 16_384
_CHOICES = {
    "loss": ("huber", "squared"),
    "pairing": ("all", "permuted"),
    "reward_scale": ("none", "running"),
}
_OPTIONS = ("loss", "normalisation", "hidden", "pairing")


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
    """

    name: str
    builder: str
    description: str
    options: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    one_step: bool = False


def _on_the_grid(name: str, design: Design) -> ObjectiveEntry:
    options = [option for option in _OPTIONS if option != "normalisation" or _scales(design)]
    options += ["beta"] if design.distance == "mico" else []
    options += ["coefficient"] if design.adaptive else []
    options += [] if design.released else ["reward_scale"]
    defaults = {"design": design, "normalisation": design.normalised}
    if design.released:
        defaults |= {"loss": "squared", "pairing": "permuted"}
    if design.tied:
        defaults |= {"reward_scale": "running"}
    builder = "revbis.objectives.bisimulation:make"
    return ObjectiveEntry(name, builder, design.description, tuple(options), defaults)


def _scales(design: Design) -> bool:
    """Whether embeddings may be scaled to length 1: the energy distance needs their length."""
    return design.distance != "energy"


def _baseline(name: str, description: str, *, rewards: bool) -> ObjectiveEntry:
    builder = "revbis.objectives.prediction:PredictionObjective"
    options = ("loss", "normalisation", "hidden")
    return ObjectiveEntry(name, builder, description, options, {"rewards": rewards}, one_step=True)


_ENTRIES = (
    *(_on_the_grid(name, design) for name, design in DESIGNS.items()),
    ObjectiveEntry(
        "dbc",
        "revbis.objectives.dbc:DBCObjective",
        "L1 distance between states, (1, γ), learned dynamics",
        _OPTIONS,
    ),
    _baseline("zp", "no metric: predicts the next embedding", rewards=False),
    _baseline("deepmdp", "no metric: predicts next embedding and reward", rewards=True),
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
    raise ValueError(checks.not_a_choice(name, (*also, *known), what))


def accepted_options(name: str) -> tuple[str, ...]:
    """The options of a registered objective; of a user's own none are known."""
    return OBJECTIVES[name].options if name in OBJECTIVES else ()


def needs_one_step(name: str) -> bool:
    """Whether a registered objective learns from one-step transitions only."""
    return name in OBJECTIVES and OBJECTIVES[name].one_step


def make_objective(name: str, latent_dim: int, action_dim: int, **options: object) -> Objective:
    """An objective by name.

    Args:
        name: One of `OBJECTIVES`: mico, simsr; mico-rev, simsr-rev (the revised metric, ψ and c);
            …-rev-no-c and …-rev-no-sa (without the coefficient, without ψ); …-rev-full (with the
            equation that the paper's loss leaves out); energy, energy-rev-full (a distance that
            can be exact); …-rev-pairs (ROPE's operator); mico-rev-released (the loss of the
            authors' released code, without its action embedding and initialisation); dbc; zp and
            deepmdp (baselines that predict the next embedding, and the reward). Or your own as
            package.module:factory, a function that is called with (latent_dim, action_dim,
            **options).
        latent_dim: Width of the embeddings.
        action_dim: Width of the actions.
        **options: loss ("huber" | "squared"), normalisation (bool), beta (MICo's angle weight),
            hidden (width of the head), pairing ("all" | "permuted"), coefficient ("learned" |
            "discount" | a number in (0, 1)), reward_scale ("none" | "running"); for your own what
            it accepts.

    Raises:
        ValueError: For unknown names or options, with what is known; for an objective of your own
            that does not work, with what is wrong.
    """
    check_name(name)
    latent_dim = checks.whole(latent_dim, "latent_dim", 1, _WIDEST)
    action_dim = checks.whole(action_dim, "action_dim", 1, _WIDEST)
    entry = OBJECTIVES.get(name)
    if entry is not None:
        checked = {each: _check_option(entry, each, value) for each, value in options.items()}
        options = {**entry.defaults, **checked}
    builder = name if entry is None else entry.builder
    if builder.startswith("revbis."):
        objective: Objective = load_factory(builder)(latent_dim, action_dim, **options)
        return objective
    from revbis.objectives.own import make_own

    return make_own(builder, latent_dim, action_dim, options)


def _check_option(entry: ObjectiveEntry, option: str, value: Any) -> Any:
    checks.choice(option, entry.options, f"an option of {entry.name}")
    if option in _CHOICES:
        return checks.choice(value, _CHOICES[option], option)
    if option == "beta":
        return checks.positive(value, option)
    if option == "coefficient":
        return value if value in ("learned", "discount") else _fixed_c(value)
    if option == "hidden":
        return checks.whole(value, option, 1, _WIDEST)
    if option == "normalisation" and not isinstance(value, bool):
        raise ValueError(f"{option} must be True or False, got {value!r:.80}")
    return value


def _fixed_c(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            f"coefficient must be learned, discount or a number in (0, 1), got {value!r:.80}"
        )
    return float(value)
