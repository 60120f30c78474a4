"""The methods by name: DrQ-v2 alone, or with an objective. Imports no torch."""

from __future__ import annotations

from revbis.objectives.registry import OBJECTIVES

METHODS = ("drqv2", *OBJECTIVES)
