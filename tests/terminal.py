"""A command whose output a terminal shows, whole: what a closed terminal has not handed over yet may be lost."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading

END = b"\0end\0"


def run_on_terminal(words, stdout=True, stderr=True, columns=None, **popen):
    """Exit code, what came through pipes (of stdout, stderr), and what the terminal shows of the others."""
    ours, theirs = pty.openpty()
    if columns is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen = bytearray()

    def read():
        while not seen.endswith(END):
            seen.extend(os.read(ours, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        ends = [theirs if shown else subprocess.PIPE for shown in (stdout, stderr)]
        words = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=ends[0], stderr=ends[1], **popen)
        piped = [(text or b"").decode() for text in process.communicate(timeout=60)]
    finally:
        os.write(theirs, END)
        reader.join(60)
        os.close(theirs)
        os.close(ours)
    return process.returncode, *piped, seen.removesuffix(END).decode().replace("\r\n", "\n")
