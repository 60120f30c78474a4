"""The report: findings under their headings, and whether training would work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from revbis.envs.suites import SUITES

SIZE = 84  # of the images that are drawn
Health = Literal["ok", "warning", "missing", "broken", "not tried", "not needed"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: The part of the machine.
        health: Its condition.
        detail: Versions, sizes, speeds or the error.
        fixes: Commands that fix or improve it, the best first.
    """

    name: str
    health: Health
    detail: str
    fixes: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether training can use it."""
        return self.health in ("ok", "warning")

    @property
    def first_fix(self) -> str:
        """The best fix; empty if there is none."""
        return self.fixes[0] if self.fixes else ""


@dataclass(frozen=True)
class Report:
    """All findings.

    Attributes:
        machine: Python, torch, cores, memory, disk.
        drawing: The OpenGL backends.
        packages: Simulators and optional packages.
        chosen: The backend that training would use; empty if there is none.
        requested: The user's MUJOCO_GL; empty if not set.
    """

    machine: tuple[Finding, ...]
    drawing: tuple[Finding, ...]
    packages: tuple[Finding, ...]
    chosen: str
    requested: str = ""

    def sections(self) -> dict[str, tuple[Finding, ...]]:
        """The findings by heading."""
        used = f"training uses {self.chosen}" if self.chosen else "training has no backend"
        used += f", because MUJOCO_GL={self.requested}" if self.requested else ""
        drawing = f"drawing, {SIZE}×{SIZE} ({used})"
        return {"machine": self.machine, drawing: self.drawing, "packages": self.packages}

    @property
    def works(self) -> bool:
        """Whether training from pixels would work."""
        return not self._blockers()

    @property
    def verdict(self) -> str:
        """The last line: whether training would work, or what to do first."""
        blockers = self._blockers()
        if blockers:
            why = "; ".join(reason for reason, _ in blockers)
            steps = dict.fromkeys(fix for _, fix in blockers if fix)  # each once, in order
            advice = f"; to fix it: {' && '.join(steps)}" if steps else ""
            return f"training would not work: {why}{advice}"
        working = " and ".join(name for name in _simulators() if self._finding(name).works)
        return f"training works: {working}, drawn with {self.chosen}"

    def _finding(self, name: str) -> Finding:
        findings = self.machine + self.drawing + self.packages
        absent = Finding(name, "missing", "not examined")
        return next((finding for finding in findings if finding.name == name), absent)

    def _blockers(self) -> list[tuple[str, str]]:
        """Reasons why training would fail, each with the command that fixes it."""
        blockers = []
        if not self._finding("torch").works:
            blockers.append(self._blocker("torch"))
        simulators = [self._finding(name) for name in _simulators()]
        if not any(finding.works for finding in simulators):
            each = ", ".join(f"{finding.name} is {finding.health}" for finding in simulators)
            fix = simulators[0].first_fix  # installs gymnasium as well
            blockers.append((f"no simulator works ({each})", fix))
        elif not self._finding("gymnasium").works:
            blockers.append(self._blocker("gymnasium"))
        return blockers + self._drawing_blockers()

    def _drawing_blockers(self) -> list[tuple[str, str]]:
        chosen = self._finding(self.chosen)
        if chosen.works or chosen.health == "not tried":
            return []  # not tried: MuJoCo is missing, which is a reason already
        working = [finding.name for finding in self.drawing if finding.works]
        if working:
            return [(f"{self.chosen} cannot draw here", f"export MUJOCO_GL={working[0]}")]
        fixes = [fix for finding in self.drawing for fix in finding.fixes]
        return [("no OpenGL backend draws", fixes[0] if fixes else "")]

    def _blocker(self, name: str) -> tuple[str, str]:
        finding = self._finding(name)
        return f"{name} is {finding.health}", finding.first_fix


def _simulators() -> list[str]:
    """The packages of the suites that MuJoCo draws."""
    return [suite.packages[-1] for suite in SUITES.values() if suite.drawn_by_mujoco]
