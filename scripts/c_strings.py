#!/usr/bin/env python3
"""The strings of C files, FILE:LINE: TEXT, adjacent literals as one; names of files that are included are left out.
With --comments their comments, line by line.

c_strings.py [--comments] FILE...
"""

import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')

is_comments = sys.argv[1:2] == ["--comments"]
for path in sys.argv[2:] if is_comments else sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        source = file.read()
    if is_comments:
        for m in COMMENT_OR_STRING.finditer(source):
            line = source.count("\n", 0, m.start()) + 1
            for i, text in enumerate(m[0].split("\n") if m[0].startswith("/*") else []):
                print(f"{path}:{line + i}:", text.strip())
        continue
    text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    text = re.sub(r"^#\s*include.*", "", text, flags=re.M)
    for m in STRINGS.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        print(f"{path}:{line}:", "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', m[0])))
