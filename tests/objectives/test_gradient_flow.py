import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def drawing():
    spec = importlib.util.spec_from_file_location("draw", DOCS / "draw_gradient_flow.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_the_measured_gradients() -> None:
    module = drawing()
    flow = module.measured_flow()
    picture = (DOCS / "gradient-flow.svg").read_text()
    shown = set(re.findall(r'id="(\w+_loss)-to-(\w+)"', picture))
    assert shown == flow
    assert flow == {
        ("representation_loss", "phi"),
        ("representation_loss", "head"),
        ("coefficient_loss", "raw_c"),
    }
    assert picture == module.svg(flow)
