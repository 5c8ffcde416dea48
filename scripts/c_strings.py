#!/usr/bin/env python3
"""The strings of C files, FILE:LINE: TEXT, adjacent literals as one; names of files that are included are left out.

c_strings.py FILE...
"""

import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')

for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), file.read())
    text = re.sub(r"^#\s*include.*", "", text, flags=re.M)
    for m in STRINGS.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        print(f"{path}:{line}:", "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', m[0])))
