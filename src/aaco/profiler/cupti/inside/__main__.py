"""`python FOLDER`, where FOLDER is this one and Python is the one to examine: see probe."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
importlib.import_module("inside.probe").main()
