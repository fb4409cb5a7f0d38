"""Runs `tokenwire`, and writes the stacks of all threads into a file at each SIGUSR2: `watched FILE ARGUMENTS...`.

Python itself writes them between two instructions. `faulthandler` would write at once, and end the process now and
then: it reads the frames of threads that go on meanwhile.
"""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TextIO

from tokenwire.cli.main import main


def write_stacks(file: TextIO) -> None:
    """Write a paragraph for each thread, its innermost frame first.

    By one name for all frames: one that still named that of this call would keep it, and what those below it have.
    """
    frame: FrameType | None
    for thread, frame in sys._current_frames().items():
        file.write(f"Thread {thread}\n")
        while frame is not None:
            code = frame.f_code
            if code.co_filename != __file__:
                file.write(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
            frame = frame.f_back
        file.write("\n")
    file.flush()


if __name__ == "__main__":
    with Path(sys.argv.pop(1)).open("a") as stacks:
        signal.signal(signal.SIGUSR2, lambda *_: write_stacks(stacks))
        main()
