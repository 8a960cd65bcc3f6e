"""For processes that tests start: with this folder on ``PYTHONPATH``, ``import cupy`` gives the stand-in."""

import sys

from stand_in.library import modules

sys.modules.update(modules())
