"""Lets the tests of this folder import mkckpt.py and its neighbours by name."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
