"""What a replay buffer is saved with, beside its records."""

from typing import Any

FORMAT = 1


def check_state(state: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuses what state() of a buffer with these settings did not return.

    Args:
        state: What is to be restored.
        own: The settings of the buffer.

    Raises:
        ValueError: If the state is of another format, damaged or of other settings.
    """
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        came = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the replay's state must be of format {FORMAT}, got {came!r}")
    missing = {"settings", "written", "running", "generator"} - set(state)
    if missing or not (
        isinstance(state["settings"], dict)
        and isinstance(state["running"], bool)
        and isinstance(state["generator"], dict)
    ):
        raise ValueError("the replay's state is damaged: give what state() returned, unchanged")
    saved = state["settings"]
    differing = [
        f"{name} {saved.get(name)!r}, not {value!r}"
        for name, value in own.items()
        if saved.get(name) != value
    ]
    if differing:
        raise ValueError(
            f"the saved replay has {'; '.join(differing)}; use the settings it was saved with"
        )
