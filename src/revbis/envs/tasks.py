"""The names of tasks, and whether a task can be made, told without importing a simulator.

The names are those of the pinned simulators; a test compares them with what is installed.
"""

from __future__ import annotations

import ast
import os
import sys
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from revbis import checks
from revbis.system.extras import is_installed, missing_text

FORMS = "dmc:NAME, metaworld:NAME, gym:ID or package.module:factory"
_NEEDS = {
    "dmc": ("gymnasium", "mujoco", "dm_control"),
    "metaworld": ("gymnasium", "mujoco", "metaworld"),
}

_DMC = """
    acrobot_swingup acrobot_swingup_sparse ball_in_cup_catch cartpole_balance
    cartpole_balance_sparse cartpole_swingup cartpole_swingup_sparse cartpole_three_poles
    cartpole_two_poles cheetah_run dog_fetch dog_run dog_stand dog_trot dog_walk finger_spin
    finger_turn_easy finger_turn_hard fish_swim fish_upright hopper_hop hopper_stand
    humanoid_CMU_run humanoid_CMU_stand humanoid_CMU_walk humanoid_run humanoid_run_pure_state
    humanoid_stand humanoid_walk lift_brick lift_large_box lqr_lqr_2_1 lqr_lqr_6_2
    manipulator_bring_ball manipulator_bring_peg manipulator_insert_ball manipulator_insert_peg
    pendulum_swingup place_brick place_cradle point_mass_easy point_mass_hard quadruped_escape
    quadruped_fetch quadruped_run quadruped_walk reach_duplo reach_site reacher_easy
    reacher_hard reassemble_3_bricks_fixed_order reassemble_5_bricks_random_order stack_2_bricks
    stack_2_bricks_moveable_base stack_2_of_3_bricks_random_order stack_3_bricks stacker_stack_2
    stacker_stack_4 swimmer_swimmer15 swimmer_swimmer6 walker_run walker_stand walker_walk
"""
_METAWORLD = """
    assembly basketball bin-picking box-close button-press button-press-topdown
    button-press-topdown-wall button-press-wall coffee-button coffee-pull coffee-push dial-turn
    disassemble door-close door-lock door-open door-unlock drawer-close drawer-open faucet-close
    faucet-open hammer hand-insert handle-press handle-press-side handle-pull handle-pull-side
    lever-pull peg-insert-side peg-unplug-side pick-out-of-hole pick-place pick-place-wall
    plate-slide plate-slide-back plate-slide-back-side plate-slide-side push push-back push-wall
    reach reach-wall shelf-place soccer stick-pull stick-push sweep sweep-into window-close
    window-open
"""
_NAMES = {"dmc": tuple(_DMC.split()), "metaworld": tuple(_METAWORLD.split())}


def task_names(suite: str) -> list[str]:
    """Every task of "dmc" or "metaworld", as `make_env` takes it, installed or not."""
    checks.choice(suite, _NAMES, "suite")
    return [f"{suite}:{name}" for name in _NAMES[suite]]


def missing(suite: str) -> str | None:
    """What "dmc" or "metaworld" needs and is not installed, with the line that installs it."""
    checks.choice(suite, _NAMES, "suite")
    for module in _NEEDS[suite]:
        if not is_installed(module):
            return missing_text(module, suite, f"a {suite}: task")
    return None


def check_name(task: str) -> None:
    """Refuses a name that no task can have.

    Raises:
        ValueError: For a task that dmc or metaworld does not have, with the nearest names, or one
            that is not written as tasks are.
    """
    if not isinstance(task, str):
        raise ValueError(f"a task must be {FORMS}, got {task!r}")
    suite, _, name = task.partition(":")
    if not (suite and name):
        raise ValueError(f"a task must be {FORMS}, got {task!r}{_suggestion(task)}")
    if suite in _NAMES and name not in _NAMES[suite]:
        names = task_names(suite)
        near = get_close_matches(task, names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"there is no task {task!r} among the {len(names)} of {suite}{hint}")


def check_task(task: str) -> None:
    """Refuses a task that cannot be made here, without making it or importing its simulator.

    Raises:
        ValueError: For an unknown task.
        ModuleNotFoundError: Where its simulator is not installed, with the line that installs it.
    """
    check_name(task)
    suite, _, name = task.partition(":")
    if suite in _NAMES:
        text = missing(suite)
        if text is not None:
            raise ModuleNotFoundError(text)
    elif not is_installed("gymnasium"):
        raise ModuleNotFoundError(missing_text("gymnasium", "gym", "an environment"))
    elif suite == "gym":
        _check_registered(name)
    else:
        _check_factory(task)


def search_working_folder() -> None:
    """Lets modules of the working folder be imported, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def no_module(task: str, module: str) -> ValueError:
    """The error for a factory whose module is not there."""
    return ValueError(
        f"{task}: there is no module {module!r} on sys.path or in {os.getcwd()}; a task is {FORMS}"
    )


def no_factory(task: str) -> ValueError:
    """The error for a module without the factory."""
    module, _, factory = task.partition(":")
    return ValueError(f"{task}: module {module!r} has no function {factory!r}")


def _check_registered(name: str) -> None:
    if ":" in name:  # a module that registers it must be imported first
        return
    from gymnasium import error, spec

    try:
        spec(name)
    except error.Error as problem:
        raise ValueError(f"gym:{name} cannot be made: {problem}") from None


def _check_factory(task: str) -> None:
    """Looks for the factory in the module's source; the module is not imported."""
    module, _, factory = task.partition(":")
    search_working_folder()
    try:
        spec = None if module.startswith(".") else find_spec(module)
    except ModuleNotFoundError as absent:
        if absent.name is None or not module.startswith(absent.name):
            raise  # a package around it needs another one
        raise no_module(task, absent.name) from None
    except Exception:  # the packages around it are imported, and may raise whatever they like
        return
    if spec is None:
        raise no_module(task, module)
    if spec.origin and spec.origin.endswith(".py"):
        names = _bound_names(Path(spec.origin))
        if names is not None and factory not in names:
            raise no_factory(task)


def _bound_names(path: Path) -> set[str] | None:
    """Every name that a module's source may bind; None if that cannot be told."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    dynamic = {"*", "__getattr__", "globals"} & (names | _called_names(tree))
    return None if dynamic else names


def _called_names(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _suggestion(task: str) -> str:
    """The nearest full names for a task written without its suite."""
    full = {name: f"{suite}:{name}" for suite, names in _NAMES.items() for name in names}
    near = get_close_matches(task, list(full), n=1, cutoff=0.7)
    return f"; did you mean {full[near[0]]}?" if near else ""
