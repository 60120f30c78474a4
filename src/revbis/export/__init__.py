"""A run's agent as a folder that others can load: weights, settings and a model card.

agent = revbis.load("exported")
action = agent.act(observation)
z = agent.embed(observations)
"""

from revbis.export.agent import TrainedAgent, load
from revbis.export.writer import write_export

__all__ = ["TrainedAgent", "load", "write_export"]
