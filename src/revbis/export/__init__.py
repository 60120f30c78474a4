"""A run's agent as a folder that others can load: weights, settings and a model card.

agent = revbis.load("exported")
action = agent.act(observation)
z = agent.embed(observations)
"""

from revbis.export.agent import ExportedAgent, load
from revbis.export.writer import write_export

__all__ = ["ExportedAgent", "load", "write_export"]
